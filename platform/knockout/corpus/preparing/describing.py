"""What was written to a manifest: the exam, the floors, and the identity.

The invariant: shards are verified while they are read, and no more of them is held than the exam and a block of tokens.

Shapes: S segments of L tokens.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from knockout.corpus.encoding.encoder import Encoder
from knockout.corpus.floors import MAX_FIT_TOKENS, CountingFloors, PairCounts
from knockout.corpus.generators.generated import entropy_rate
from knockout.corpus.manifest import (
    FORMAT,
    Counts,
    EvaluationEntry,
    Floors,
    Manifest,
    SourceEntry,
    SplitEntry,
    Splits,
    TokenizerFile,
    content_digest,
)
from knockout.corpus.preparing.parts import Encoded
from knockout.corpus.shards import file_sha256, map_shard
from knockout.declare.corpus import Corpus
from knockout.declare.generators import Generator

BLOCK_TOKENS = 2**21


class Side:
    """One side of a corpus, taken range by range in order: all tokens are hashed, and the first ones counted if asked."""

    def __init__(self, folder: Path, *, counts: PairCounts | None = None) -> None:
        self.folder = folder
        self.counts = counts
        self._parts: list[Encoded] = []
        self._sha256 = hashlib.sha256()
        self._to_count = MAX_FIT_TOKENS

    def take(self, part: Encoded) -> None:
        """Read the shards of the next range."""
        self._parts.append(part)
        for shard in part.shards:
            tokens_N = map_shard(self.folder, entry=shard)
            for start in range(0, len(tokens_N), BLOCK_TOKENS):
                block_N = tokens_N[start : start + BLOCK_TOKENS]
                self._sha256.update(block_N.astype(np.dtype("<u4")).tobytes())
                if self.counts is not None and self._to_count > 0:
                    self.counts.add(block_N[: self._to_count])
                    self._to_count -= len(block_N)

    def entry(self) -> SplitEntry:
        """What was taken."""
        shards = tuple(shard for part in self._parts for shard in part.shards)
        return SplitEntry(
            documents=sum(part.documents for part in self._parts),
            tokens=sum(shard.tokens for shard in shards),
            raw_bytes=sum(part.raw_bytes for part in self._parts),
            content_sha256=self._sha256.hexdigest(),
            shards=shards,
        )


@dataclass(frozen=True, eq=False)
class Exam:
    """The exam's segments [S, L], and their description."""

    tokens_SL: np.ndarray
    entry: EvaluationEntry


def describe(
    corpus: Corpus,
    *,
    counts: Counts,
    sources: tuple[SourceEntry, ...],
    splits: Splits,
    exam: Exam,
    floors: CountingFloors,
    encoder: Encoder,
    folder: Path,
) -> Manifest:
    """The manifest of a corpus whose shards lie in `folder`."""
    rate = entropy_rate(corpus.source) if isinstance(corpus.source, Generator) else None
    manifest = Manifest(
        format=FORMAT,
        digest="",
        declaration=corpus,
        vocabulary=len(encoder.token_bytes_V),
        end_of_text=encoder.end_of_text,
        token_bytes=tuple(encoder.token_bytes_V.tolist()),
        tokenizer=_tokenizer(encoder, folder=folder),
        splits=splits,
        counts=counts,
        sources=sources,
        evaluation=exam.entry,
        floors=Floors(unigram=floors.unigram, bigram=floors.bigram, entropy_rate=rate),
    )
    return manifest.model_copy(update={"digest": content_digest(manifest)})


def make_exam(corpus: Corpus, *, split: SplitEntry, folder: Path, encoder: Encoder) -> Exam:
    """The exam; its segments lie evenly in the validation split and share no target."""
    num_segments, num_targets = corpus.evaluation.segments, corpus.evaluation.tokens
    starts_S = np.arange(num_segments) * (split.tokens - 1) // num_segments
    length = num_targets // num_segments
    tokens_SL = _rows(split, folder=folder, starts_S=starts_S, length=length + 1)
    entry = EvaluationEntry(
        split="validation",
        starts=tuple(starts_S.tolist()),
        segment_tokens=length,
        tokens=num_targets,
        bytes=int(encoder.token_bytes_V[tokens_SL[:, 1:]].sum()),
        dtype="float32",
    )
    return Exam(tokens_SL, entry)


def _rows(split: SplitEntry, *, folder: Path, starts_S: np.ndarray, length: int) -> np.ndarray:
    rows_SL = np.empty((len(starts_S), length), np.int64)
    first = 0
    for shard in split.shards:
        tokens_N = map_shard(folder, entry=shard)
        for row_L, start in zip(rows_SL, starts_S.tolist(), strict=True):
            low, high = max(start, first), min(start + length, first + len(tokens_N))
            if low < high:
                row_L[low - start : high - start] = tokens_N[low - first : high - first]
        first += len(tokens_N)
    return rows_SL


def _tokenizer(encoder: Encoder, *, folder: Path) -> TokenizerFile | None:
    return None if encoder.file is None else TokenizerFile(file=encoder.file, sha256=file_sha256(folder / encoder.file))
