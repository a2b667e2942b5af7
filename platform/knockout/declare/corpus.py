"""A corpus: where its text comes from, how it becomes tokens, and what of it is kept for the exam.

The invariant: a declaration names its text, it never holds it. What the text was is written down at
preparation, in the manifest.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from knockout.declare.base import Declaration, Name, Positive, conflicts
from knockout.declare.generators import Composition, Generator, Markov, Recall, WordProblem

Undecodable = Literal["error", "skip"]


class PythonSource(Declaration):
    """The running interpreter's standard library, test folders included: one document a file.

    Files that are not UTF-8 (a few of the library's own tests) are skipped and counted.
    """

    kind: Literal["python_source"] = "python_source"


class Files(Declaration):
    """Text files, JSON lines or Parquet."""

    kind: Literal["files"] = "files"
    paths: Annotated[tuple[str, ...], Field(min_length=1)]
    """Files, folders or globs (`**` descends), relative to the declaration's folder."""
    format: Literal["text", "jsonl", "parquet"] = "text"
    """What the files hold."""
    column: str = "text"
    """JSON lines and Parquet: the field that holds a document's text."""
    separator: Annotated[str, Field(min_length=1)] | None = None
    """Text: a file is cut into documents at each occurrence; none makes each file one document."""
    undecodable: Undecodable = "error"
    """A document that is not UTF-8: an error, or skipped and counted."""

    @model_validator(mode="after")
    def _separator_is_for_text(self) -> Files:
        if self.separator is not None and self.format != "text":
            conflicts("Files", [("separator", self.separator, f"only text has one; format is {self.format}")])
        return self


Source = Annotated[PythonSource | Files | Markov | Recall | Composition | WordProblem, Field(discriminator="kind")]


class Bpe(Declaration):
    """Byte-level byte-pair encoding, trained on the corpus for the architecture's vocabulary."""

    kind: Literal["bpe"] = "bpe"
    sample_bytes: Annotated[int, Field(ge=1024)] = 8_000_000
    """Bytes of training documents that merges are learnt from; doubled while they give too few."""


class Bytes(Declaration):
    """Each byte is a token; end-of-text is token 256."""

    kind: Literal["bytes"] = "bytes"


class Identity(Declaration):
    """A generator's symbols are tokens already; end-of-text comes after the last symbol."""

    kind: Literal["identity"] = "identity"


Tokenizer = Annotated[Bpe | Bytes | Identity, Field(discriminator="kind")]


class Evaluation(Declaration):
    """How large the exam is."""

    tokens: Positive = 32_768
    """Number of validation tokens that are predicted, a multiple of `segments`."""
    segments: Positive = 16
    """Stretches that they lie in, evenly spread over the validation split, each longer than any window."""

    @model_validator(mode="after")
    def _segments_are_equal(self) -> Evaluation:
        if self.tokens % self.segments:
            rule = f"must be a multiple of segments ({self.segments})"
            conflicts("Evaluation", [("tokens", self.tokens, rule)])
        return self


class Corpus(Declaration):
    """Raw text or a generator, its tokenizer, and its split."""

    corpus: Name
    """The corpus' name."""
    source: Source
    """Where documents come from."""
    tokenizer: Tokenizer
    """How documents become tokens."""
    validation: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.05
    """Share of documents kept from training, chosen by the hash of their content."""
    evaluation: Evaluation = Evaluation()
    """The exam."""

    @model_validator(mode="after")
    def _tokenizer_fits_source(self) -> Corpus:
        generated = isinstance(self.source, Generator)
        if generated != isinstance(self.tokenizer, Identity):
            rule = "a generator's tokenizer is identity, for its symbols are tokens already"
            if not generated:
                rule = "identity is for generators; text takes bpe or bytes"
            conflicts("Corpus", [("tokenizer.kind", self.tokenizer.kind, rule)])
        return self
