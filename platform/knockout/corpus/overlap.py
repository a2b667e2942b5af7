"""Whether a document of a text stands on both sides of a corpus.

What is drawn is exempt: its exam is a fresh draw from the same source, in which what occurs often occurs again. Were copies
kept from it, the exam would be of another language than the one whose floor is known.

The invariant: documents are compared by SHA-256 of all their tokens, but only those that begin alike and are as long.
Where they begin costs one pass over the tokens.

Shapes: N tokens of a shard, D documents.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

from knockout.corpus.reading import Split
from knockout.declare.generators import Generator
from knockout.errors import CorpusError

HEAD = 8
"""Tokens of a document's beginning that are compared first."""


def check_disjoint(train: Split, validation: Split) -> None:
    """Refuse a corpus of text whose splits share a document; a generator's may.

    Raises:
        CorpusError: they do.
    """
    if isinstance(train.manifest.declaration.source, Generator):
        return
    known: set[bytes] = set()
    keys: list[np.ndarray] = []
    for keys_D, bounds_D2 in _documents(validation):
        keys.append(keys_D)
        known.update(_digest(validation, start, end) for start, end in bounds_D2.tolist())
    wanted = np.unique(np.concatenate(keys)) if keys else np.zeros(0, np.uint64)
    for keys_D, bounds_D2 in _documents(train):
        for start, end in bounds_D2[np.isin(keys_D, wanted)].tolist():
            if _digest(train, start, end) in known:
                corpus = train.manifest
                raise CorpusError(
                    f"the corpus {corpus.declaration.corpus} ({corpus.digest[:16]}…) has a document of {end - start:,} "
                    f"tokens both in train, from token {start:,} on, and in validation: nothing that is trained on may be "
                    "in the exam; prepare the corpus again"
                )


def _digest(split: Split, start: int, end: int) -> bytes:
    return hashlib.sha256(split.gather(np.array([start]), length=end - start).tobytes()).digest()


def _documents(split: Split) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For the documents that end in each shard: a hash of length and beginning, uint64 [D]; start and end, int64 [D, 2]."""
    begun = 0
    for first, tokens_N in zip(split.firsts, split.shards, strict=False):
        ends_D = first + np.flatnonzero(tokens_N == split.manifest.end_of_text)
        if len(ends_D):
            starts_D = np.concatenate([[begun], ends_D[:-1] + 1])
            begun = int(ends_D[-1]) + 1
            yield _keys(split, starts_D, ends_D), np.stack([starts_D, ends_D], axis=1)


def _keys(split: Split, starts_D: np.ndarray, ends_D: np.ndarray) -> np.ndarray:
    keys_D = (ends_D - starts_D).astype(np.uint64)
    for place in range(HEAD):
        inside_D = starts_D + place < ends_D
        keys_D *= np.uint64(0x9E3779B97F4A7C15)
        keys_D[inside_D] ^= _tokens_at(split, starts_D[inside_D] + place) + np.uint64(1)
    return keys_D


def _tokens_at(split: Split, positions_D: np.ndarray) -> np.ndarray:
    tokens_D = np.empty(len(positions_D), np.uint64)
    shards_D = np.searchsorted(split.firsts, positions_D, side="right") - 1
    for shard in np.unique(shards_D):
        here_D = shards_D == shard
        tokens_D[here_D] = split.shards[shard][positions_D[here_D] - split.firsts[shard]]
    return tokens_D
