"""What a prepared corpus is: its declaration, splits, shards, bytes and floors.

The invariant: `digest` depends on the tokens, what they stand for, and the exam; never on paths, names,
times, machines or on the versions of the libraries that wrote the files.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from knockout.declare.base import Declaration
from knockout.declare.corpus import Corpus
from knockout.declare.plain import canonical
from knockout.errors import CorpusError

FORMAT = 1
"""Number of the folder's layout and of all that decides what the tokens are; raised when either changes."""
MANIFEST = "manifest.json"

PASSED_OVER = ("hidden_files", "files_in_another_case", "broken_links")
"""Names of `Counts` that count files, not documents."""

SplitName = Literal["train", "validation"]


class ShardEntry(Declaration):
    """One file of tokens."""

    file: str
    tokens: int
    sha256: str


class SplitEntry(Declaration):
    """One side of the corpus."""

    documents: int
    tokens: int
    """End-of-text tokens included."""
    raw_bytes: int
    """UTF-8 bytes of the documents, counted from the text; a generator's symbol counts as one byte."""
    content_sha256: str
    """Of the tokens as little-endian 32-bit integers."""
    shards: tuple[ShardEntry, ...]


class Counts(Declaration):
    """Documents that are not simply part of the corpus."""

    empty: int
    """Without any text: skipped."""
    undecodable: int
    """Not UTF-8: skipped, where the declaration allows it."""
    malformed: int = 0
    """Lines of JSON that are no record with a text: skipped, where the declaration allows it."""
    filtered: int = 0
    """Rows that do not meet the declaration's condition."""
    duplicates: int
    """Exact copies of another document: kept, a text's on the same side as the first, a generator's wherever they fall.
    None where near copies are left out, for then they are among those."""
    near_duplicates: int = 0
    """Near and exact copies of another document: left out, where the declaration asks for it."""
    hidden_files: int = 0
    """Files of this machine that folders and globs pass over since a name on their path begins with a dot."""
    files_in_another_case: int = 0
    """Files that they pass over since letters of their names are in another case than is asked for."""
    broken_links: int = 0
    """Links to nothing: passed over."""


class SourceEntry(Declaration):
    """What a mixture holds of one of its sources, exact copies included, before near copies are left out."""

    name: str
    share: float
    """Of the mixture's bytes, as declared, 0 … 1."""
    documents: int
    """In the mixture."""
    raw_bytes: int
    """Of these documents."""
    left_documents: int
    """In the source, and not in the mixture: to repeat nothing, the mixture is as large as its scarcest source allows."""
    left_bytes: int
    """Of these documents."""


class TokenizerFile(Declaration):
    """The trained tokenizer."""

    file: str
    sha256: str


class Floors(Declaration):
    """Cross-entropies on the exam in nats per token: what counting achieves, and what nothing can beat."""

    unigram: float
    bigram: float
    entropy_rate: float | None
    """Generators only: what the true model expects per token, the least that any model can."""


class EvaluationEntry(Declaration):
    """The frozen exam: in each segment, predict `segment_tokens` tokens from its second one on."""

    split: SplitName
    starts: tuple[int, ...]
    """Position of each segment's first token in the split."""
    segment_tokens: int
    """Predicted tokens in each segment: the longest context of an exam's window."""
    tokens: int
    """Predicted tokens altogether."""
    bytes: int
    """Raw bytes that exactly the predicted tokens stand for."""
    dtype: Literal["float32"]
    """Precision in which losses are summed."""


class Splits(Declaration):
    """Both sides."""

    train: SplitEntry
    validation: SplitEntry


class Manifest(Declaration):
    """What a prepared corpus is."""

    format: int
    digest: str
    """The corpus' identity, 64 hex digits."""
    declaration: Corpus
    vocabulary: int
    end_of_text: int
    """The token after each document."""
    token_bytes: tuple[int, ...]
    """Raw bytes that each token stands for; 0 for end-of-text and for tokens that never occur."""
    tokenizer: TokenizerFile | None
    """None for tokenizers that need no file."""
    splits: Splits
    counts: Counts
    sources: tuple[SourceEntry, ...] = ()
    """A mixture's sources in their order; none for every other corpus."""
    evaluation: EvaluationEntry
    floors: Floors
    checksum: str | None = None
    """SHA-256 of all the rest, 64 hex digits; None in manifests of releases that wrote none."""

    def split(self, name: str) -> SplitEntry:
        """One side of the corpus; raises CorpusError for a name other than train and validation."""
        if name not in Splits.model_fields:
            raise CorpusError(f"no split '{name}' in a corpus: there are {', '.join(Splits.model_fields)}")
        return getattr(self.splits, name)


def shares_reached(manifest: Manifest) -> list[float]:
    """Which share of a mixture's bytes each of its sources makes up, 0 … 1."""
    total = sum(one.raw_bytes for one in manifest.sources)
    return [one.raw_bytes / total for one in manifest.sources]


def content_digest(manifest: Manifest) -> str:
    """SHA-256 over what bears meaning: tokens, their bytes, the tokenizer's and the exam's declaration."""
    kept = {
        "format": manifest.format,
        "tokenizer": manifest.declaration.tokenizer.model_dump(mode="json"),
        "validation": manifest.declaration.validation,
        "vocabulary": manifest.vocabulary,
        "end_of_text": manifest.end_of_text,
        "token_bytes": manifest.token_bytes,
        "train": manifest.splits.train.content_sha256,
        "validation_content": manifest.splits.validation.content_sha256,
        "evaluation": manifest.evaluation.model_dump(mode="json"),
    }
    return hashlib.sha256(canonical(kept).encode()).hexdigest()


def sealed(manifest: Manifest) -> Manifest:
    """The manifest with its checksum: what its digest leaves out, as counts and floors, cannot change unseen either."""
    return manifest.model_copy(update={"checksum": _checksum(manifest.model_dump_json())})


def _checksum(text: str) -> str:
    """Of a manifest as JSON, whatever its spaces and the order of its keys."""
    plain = json.loads(text)
    plain.pop("checksum", None)
    return hashlib.sha256(canonical(plain).encode()).hexdigest()


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a prepared corpus.

    Raises:
        CorpusError: there is none, it is damaged, or another version of knockout wrote it.
    """
    path = folder / MANIFEST
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror}); prepare the corpus again") from None
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        found = error.errors()[0]
        where = ".".join(map(str, found["loc"])) or "the file"
        raise CorpusError(f"{path}: {where}: {found['msg']}; prepare the corpus again") from None
    if manifest.format != FORMAT:
        raise CorpusError(f"{path}: has format {manifest.format}, this knockout reads {FORMAT}; prepare the corpus again")
    if content_digest(manifest) != manifest.digest:
        raise CorpusError(f"{path}: was changed after it was written (wrong digest); prepare the corpus again")
    if manifest.checksum not in (None, _checksum(text)):
        raise CorpusError(f"{path}: was changed after it was written (wrong checksum); prepare the corpus again")
    return manifest
