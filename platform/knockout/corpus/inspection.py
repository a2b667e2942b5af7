"""What is in a prepared corpus: counts, lengths, frequent tokens, and text to look at.

The invariant: shards are read in steps, once, after their SHA-256 was checked; memory does not grow with the corpus. Every
document is found by the end-of-text after it, whatever shard it begins in.

Shapes: N tokens of a step, D documents, V vocabulary.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from knockout.corpus.encoding.encoder import Encoder
from knockout.corpus.encoding.encoders import SymbolEncoder, open_encoder
from knockout.corpus.lengths import Lengths
from knockout.corpus.manifest import Manifest
from knockout.corpus.reading import Split, open_split
from knockout.corpus.symbols import symbol_names
from knockout.declare.generators import Generator

STEP_TOKENS = 4_000_000
"""Tokens that are looked at together."""
SPLITS = ("train", "validation")
MOST_LISTED = 20
"""Frequent tokens and long documents that are kept."""
QUANTILES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)


@dataclass(frozen=True)
class Found:
    """A document of a split."""

    tokens: int
    split: str
    start: int
    """Position of its first token in the split."""
    beginning: bytes
    """What its first tokens stand for."""


@dataclass(frozen=True)
class Frequent:
    """A token and how often it occurs."""

    token: int
    content: bytes
    """What it stands for; nothing for end-of-text."""
    count: int


@dataclass(frozen=True)
class Window:
    """Text from somewhere in a split: what lies between ends of documents, in order."""

    split: str
    start: int
    pieces: tuple[bytes, ...]


@dataclass(frozen=True, eq=False)
class Inspection:
    """A prepared corpus, looked at."""

    folder: Path
    manifest: Manifest
    lengths: Lengths
    longest: tuple[Found, ...]
    frequent: tuple[Frequent, ...]
    never: int
    """Tokens of the vocabulary that stand for something and never occur."""
    windows: tuple[Window, ...]


def inspect(folder: Path, *, windows: int = 2, window_tokens: int = 96, progress: Callable[[float], None]) -> Inspection:
    """Look at a prepared corpus; of each split `windows` stretches of text, evenly spread, each at the end of a document.

    Raises:
        CorpusError: a file is missing or damaged.
    """
    splits = {name: open_split(folder, split=name) for name in SPLITS}
    manifest = splits["train"].manifest
    reader = _Reader(open_encoder(folder, manifest=manifest), manifest)
    lengths, longest = Lengths(), list[tuple[int, str, int]]()
    counts_V = np.zeros(manifest.vocabulary, np.int64)
    done, total = 0, sum(split.num_tokens for split in splits.values())
    for name, split in splits.items():
        for tokens_N, starts_D, ends_D in documents(split):
            counts_V += np.bincount(tokens_N, minlength=manifest.vocabulary)
            lengths.add(ends_D - starts_D)
            longest = _longest(longest, starts_D=starts_D, lengths_D=ends_D - starts_D, split=name)
            done += len(tokens_N)
            progress(done / total)
    order_V = np.argsort(-counts_V, kind="stable")[:MOST_LISTED]
    return Inspection(
        folder=folder,
        manifest=manifest,
        lengths=lengths,
        longest=tuple(reader.found(splits[name], start=start, tokens=length) for length, name, start in longest),
        frequent=tuple(
            Frequent(v, reader.content(np.array([v])), int(counts_V[v])) for v in order_V.tolist() if counts_V[v]
        ),
        never=int((counts_V[: reader.encoder.num_known] == 0).sum()),
        windows=tuple(w for split in splits.values() for w in reader.windows(split, count=windows, length=window_tokens)),
    )


def documents(split: Split) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Step by step the tokens [N], and of the documents that end among them first position and end-of-text's, int64 [D]."""
    begun = 0
    for first, shard_N in zip(split.firsts, split.shards, strict=False):
        for offset in range(0, len(shard_N), STEP_TOKENS):
            tokens_N = shard_N[offset : offset + STEP_TOKENS]
            ends_D = first + offset + np.flatnonzero(tokens_N == split.manifest.end_of_text)
            starts_D = np.concatenate([[begun], ends_D[:-1] + 1]) if len(ends_D) else ends_D
            begun = int(ends_D[-1]) + 1 if len(ends_D) else begun
            yield tokens_N, starts_D, ends_D


def _longest(
    known: list[tuple[int, str, int]], *, starts_D: np.ndarray, lengths_D: np.ndarray, split: str
) -> list[tuple[int, str, int]]:
    order = np.argsort(-lengths_D, kind="stable")[:MOST_LISTED]
    new = [(int(lengths_D[place]), split, int(starts_D[place])) for place in order]
    return heapq.nsmallest(MOST_LISTED, [*known, *new], key=lambda one: (-one[0], one[1], one[2]))


@dataclass(frozen=True, eq=False)
class _Reader:
    """Tokens to what people read: a text's bytes, or the names of a generator's symbols."""

    encoder: Encoder
    manifest: Manifest

    def content(self, tokens_N: np.ndarray) -> bytes:
        tokens_N = tokens_N[tokens_N != self.manifest.end_of_text]
        source = self.manifest.declaration.source
        if isinstance(self.encoder, SymbolEncoder) and isinstance(source, Generator):
            names = symbol_names(source)
            return " ".join(names[token] for token in tokens_N.tolist()).encode()
        return self.encoder.decode(tokens_N)

    def found(self, split: Split, *, start: int, tokens: int) -> Found:
        """The document at a position of a split."""
        begins_N = split.gather(np.array([start]), length=min(tokens, MOST_LISTED))[0]
        return Found(tokens, split.name, start, self.content(begins_N))

    def windows(self, split: Split, *, count: int, length: int) -> Iterator[Window]:
        """Stretches of text around the first end of a document after places that are evenly spread."""
        length = min(length, split.num_tokens)
        for index in range(count):
            place = split.num_tokens * (2 * index + 1) // (2 * count)
            start = min(max(self._end_after(split, place=place) - length // 2, 0), split.num_tokens - length)
            tokens_N = split.gather(np.array([start]), length=length)[0]
            cuts = np.flatnonzero(tokens_N == self.manifest.end_of_text)
            yield Window(split.name, start, tuple(self.content(part) for part in np.split(tokens_N, cuts)))

    def _end_after(self, split: Split, *, place: int) -> int:
        while place < split.num_tokens:
            tokens_N = split.gather(np.array([place]), length=min(4096, split.num_tokens - place))[0]
            if len(ends := np.flatnonzero(tokens_N == self.manifest.end_of_text)):
                return place + int(ends[0])
            place += len(tokens_N)
        return split.num_tokens - 1
