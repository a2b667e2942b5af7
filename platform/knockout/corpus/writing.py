"""Documents of one split to shards, checked on the way.

The invariant: nothing is written that was not counted: each document's tokens stand for exactly its raw
bytes, lie in the vocabulary, and are followed by one end-of-text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from knockout.corpus import shards
from knockout.corpus.collect import Entry, Spool
from knockout.corpus.encoders import Encoder
from knockout.corpus.manifest import ShardEntry, SplitEntry
from knockout.corpus.shards import token_dtype, write_shard

GROUP_BYTES = 8_000_000
"""Text that is encoded at a time."""
GROUP_DOCUMENTS = 10_000


@dataclass
class ShardWriter:
    """Collects tokens and writes a shard whenever one is full."""

    folder: Path
    split: str
    dtype: np.dtype
    written: list[ShardEntry] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._waiting: list[np.ndarray] = []
        self._num_waiting = 0
        self._sha256 = hashlib.sha256()

    def add(self, tokens_N: np.ndarray) -> None:
        """Append tokens."""
        self._sha256.update(tokens_N.astype(np.dtype("<u4")).tobytes())
        self._waiting.append(tokens_N.astype(self.dtype, copy=False))
        self._num_waiting += len(tokens_N)
        while self._num_waiting >= shards.MAX_TOKENS:
            self._flush(shards.MAX_TOKENS)

    def finish(self) -> str:
        """Write what is left; SHA-256 of all tokens as little-endian 32-bit integers, in hex."""
        if self._num_waiting:
            self._flush(self._num_waiting)
        return self._sha256.hexdigest()

    def _flush(self, count: int) -> None:
        waiting = np.concatenate(self._waiting)
        path = self.folder / f"{self.split}-{len(self.written):05d}.arrow"
        self.written.append(write_shard(path, tokens_N=waiting[:count]))
        self._waiting = [waiting[count:]]
        self._num_waiting -= count


def write_split(
    entries: list[Entry],
    *,
    folder: Path,
    split: str,
    spool: Spool,
    encoder: Encoder,
    progress: Callable[[float], None],
) -> SplitEntry:
    """Encode documents in order and write shards; the validation split is decoded again and compared."""
    writer = ShardWriter(folder, split, token_dtype(len(encoder.token_bytes_V)))
    raw_bytes = done = 0
    progress(0.0)
    for group in _groups(entries):
        contents = [spool.read(entry) for entry in group]
        encoded = encoder.encode(contents)
        for content, tokens_N in zip(contents, encoded, strict=True):
            raw_bytes += _checked_bytes(content, tokens_N, encoder=encoder, decode=split == "validation")
        end = np.array([encoder.end_of_text], writer.dtype)
        writer.add(np.concatenate([part for tokens_N in encoded for part in (tokens_N, end)]))
        done += len(group)
        progress(done / len(entries))
    content_sha256 = writer.finish()
    return SplitEntry(
        documents=len(entries),
        tokens=sum(shard.tokens for shard in writer.written),
        raw_bytes=raw_bytes,
        content_sha256=content_sha256,
        shards=tuple(writer.written),
    )


def _checked_bytes(content: bytes, tokens_N: np.ndarray, *, encoder: Encoder, decode: bool) -> int:
    raw_bytes = len(content) // encoder.unit_bytes
    if int(tokens_N.max()) >= encoder.end_of_text:
        raise RuntimeError(f"token {tokens_N.max()} is not below end-of-text, {encoder.end_of_text}")
    if (counted := int(encoder.token_bytes_V[tokens_N].sum())) != raw_bytes:
        raise RuntimeError(f"the tokenizer made tokens for {counted:,} of a document's {raw_bytes:,} bytes")
    if decode and encoder.decode(tokens_N) != content:
        raise RuntimeError(f"the tokenizer does not give back the document that begins with {content[:80]!r}")
    return raw_bytes


def _groups(entries: list[Entry]) -> Iterator[list[Entry]]:
    group: list[Entry] = []
    size = 0
    for entry in entries:
        group.append(entry)
        size += entry.length
        if size >= GROUP_BYTES or len(group) >= GROUP_DOCUMENTS:
            yield group
            group, size = [], 0
    if group:
        yield group
