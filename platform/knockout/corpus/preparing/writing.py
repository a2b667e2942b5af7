"""Documents of one range to shards, checked on the way.

The invariant: nothing is written that was not counted: each document's tokens stand for exactly its raw
bytes, lie in the vocabulary, and are followed by one end-of-text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from knockout.corpus import shards
from knockout.corpus.encoding.encoder import Encoder
from knockout.corpus.manifest import ShardEntry, SplitName
from knockout.corpus.shards import token_dtype, write_shard

GROUP_BYTES = 1_000_000
"""Text that is encoded and checked at a time."""
DECODED_EVERY = 64
"""One in so many groups of training documents is decoded again; of validation each is."""


class ShardWriter:
    """Takes documents in order, and writes their tokens as shards once all have come, or a shard is full."""

    def __init__(self, folder: Path, *, name: str, encoder: Encoder, split: SplitName) -> None:
        self.folder = folder
        self.name = name
        self.encoder = encoder
        self.split = split
        self.documents = 0
        self.raw_bytes = 0
        self._written: list[ShardEntry] = []
        self._waiting: list[np.ndarray] = []
        self._num_waiting = 0
        self._groups = 0

    def write(self, documents: Iterable[bytes]) -> None:
        """Encode documents, each followed by end-of-text; the validation split is decoded again and compared."""
        end = np.array([self.encoder.end_of_text], token_dtype(len(self.encoder.token_bytes_V)))
        for group in _groups(documents):
            encoded = self.encoder.encode(group)
            joined_N = np.concatenate([part for tokens_N in encoded for part in (tokens_N, end)]).astype(
                end.dtype, copy=False
            )
            self._check(group, encoded, joined_N)
            self._add(joined_N)
            self.documents += len(group)
            self.raw_bytes += sum(map(len, group)) // self.encoder.unit_bytes
            self._groups += 1

    def finish(self) -> tuple[ShardEntry, ...]:
        """Write what is left; all shards."""
        if self._num_waiting:
            self._flush(self._num_waiting)
        return tuple(self._written)

    def _check(self, group: list[bytes], encoded: list[np.ndarray], joined_N: np.ndarray) -> None:
        last = self.encoder.end_of_text
        if int(joined_N.max()) > last or np.count_nonzero(joined_N == last) != len(group):
            raise RuntimeError(f"a document has tokens that are not below end-of-text, {last}")
        for content, counted in zip(group, _counted(encoded, joined_N, encoder=self.encoder), strict=True):
            if counted != len(content) // self.encoder.unit_bytes:
                raise RuntimeError(f"the tokenizer made tokens for {counted:,} of a document's {len(content):,} bytes")
        is_decoded = self.split == "validation" or self._groups % DECODED_EVERY == 0
        if is_decoded and self.encoder.decode(joined_N) != b"".join(group):
            raise RuntimeError(f"the tokenizer does not give back the documents from the one that begins {group[0][:80]!r}")

    def _add(self, tokens_N: np.ndarray) -> None:
        self._waiting.append(tokens_N)
        self._num_waiting += len(tokens_N)
        while self._num_waiting >= shards.MAX_TOKENS:
            self._flush(shards.MAX_TOKENS)

    def _flush(self, count: int) -> None:
        waiting = np.concatenate(self._waiting)
        self._waiting = [waiting[count:]]
        self._num_waiting -= count
        suffix = f"-{len(self._written):03d}" if self._written else ""
        self._written.append(write_shard(self.folder / f"{self.name}{suffix}.arrow", tokens_N=waiting[:count]))


def _counted(encoded: list[np.ndarray], joined_N: np.ndarray, *, encoder: Encoder) -> list[int]:
    """Raw bytes that each document's tokens stand for."""
    if len(encoded) == 1:
        return [encoder.num_bytes(encoded[0])]
    starts = np.cumsum([0, *(len(tokens_N) + 1 for tokens_N in encoded[:-1])])
    return np.add.reduceat(encoder.token_bytes_V[joined_N], starts).tolist()


def _groups(documents: Iterable[bytes]) -> Iterator[list[bytes]]:
    group: list[bytes] = []
    size = 0
    for document in documents:
        group.append(document)
        size += len(document)
        if size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
