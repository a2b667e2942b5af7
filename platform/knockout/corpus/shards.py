"""A shard: one Arrow IPC file with one column of tokens, written once and mapped into memory.

The invariant: no token is handed out before the shard's SHA-256 was found equal to the manifest's.

Arrow's own ways from and to numpy import pandas where it is installed, 0.2 s in each process; buffers need none.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa

from knockout.corpus.building import writing
from knockout.corpus.manifest import ShardEntry
from knockout.errors import CorpusError

COLUMN = "tokens"
MAX_TOKENS = 64_000_000
"""Tokens in a shard: at most 256 MB of one Arrow buffer."""

_verified: set[tuple[str, int, int, int, str]] = set()


def token_dtype(vocabulary: int) -> np.dtype:
    """The smallest unsigned type that holds every token of a vocabulary: 16 or 32 bits."""
    return np.dtype(np.uint16 if vocabulary <= 2**16 else np.uint32)


def write_shard(path: Path, *, tokens_N: np.ndarray) -> ShardEntry:
    """Write tokens as one record batch in a read-only file."""
    values = pa.py_buffer(np.ascontiguousarray(tokens_N))
    column = pa.Array.from_buffers(pa.from_numpy_dtype(tokens_N.dtype), len(tokens_N), [None, values])
    batch = pa.record_batch([column], names=[COLUMN])
    with writing(path) as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)
    return ShardEntry(file=path.name, tokens=len(tokens_N), sha256=file_sha256(path))


def map_shard(folder: Path, *, entry: ShardEntry) -> np.ndarray:
    """The shard's tokens [tokens], mapped read-only.

    Raises:
        CorpusError: the file is missing, cut short, or changed.
    """
    path = folder / entry.file
    verify(path, sha256=entry.sha256)
    reader = pa.ipc.open_file(pa.memory_map(str(path)))
    column = reader.get_batch(0).column(0)
    if len(column) != entry.tokens:
        raise CorpusError(f"{path}: holds {len(column):,} tokens, its manifest says {entry.tokens:,}")
    return np.frombuffer(column.buffers()[1], f"<u{column.type.bit_width // 8}", len(column))


def verify(path: Path, *, sha256: str, again: bool = False) -> None:
    """Check a file's SHA-256: once in a process for as long as its inode, time and size stay, or `again`.

    Raises:
        CorpusError: the file is missing or is not what it was.
    """
    try:
        stat = path.stat()
        verdict = (str(path), stat.st_ino, stat.st_mtime_ns, stat.st_size, sha256)
        if verdict in _verified and not again:
            return
        found = file_sha256(path)
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror}); prepare the corpus again") from None
    if found != sha256:
        _verified.discard(verdict)
        raise CorpusError(
            f"{path}: damaged: its {stat.st_size:,} bytes have SHA-256 {found[:16]}…, the manifest says "
            f"{sha256[:16]}…; prepare the corpus again"
        )
    _verified.add(verdict)


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
