"""Compressed text: gzip and Zstandard, told by their first bytes.

The invariant: a compressed file is read to its end or refused by name; a part of one never passes for the whole.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Literal, cast

from knockout.corpus.files.stores import BLOCK_BYTES, Stored, first_bytes, open_file, reading
from knockout.errors import CorpusError

Compression = Literal["gz", "zst"]

MAGIC: dict[Compression, bytes] = {"gz": b"\x1f\x8b", "zst": b"\x28\xb5\x2f\xfd"}
"""First bytes of a gzip member (RFC 1952, 2.3.1) and of a Zstandard frame (RFC 8878, 3.1.1); no UTF-8 text begins so."""
TO_BE_SKIPPED = tuple(bytes([0x50 + low, 0x2A, 0x4D, 0x18]) for low in range(16))
"""First bytes of a frame that Zstandard skips (3.1.2), as parallel writers put first; a text may begin so."""


def compression_of(file: Stored) -> Compression | None:
    """How a file is compressed.

    Raises:
        CorpusError: its name says that it is and its content that it is not.
    """
    start = first_bytes(file, count=4)
    for name, magic in MAGIC.items():
        if start.startswith(magic):
            return name
    if file.address.endswith(".zst") and start.startswith(TO_BE_SKIPPED):
        return "zst"
    for name in MAGIC:
        if file.address.endswith(f".{name}"):
            raise CorpusError(f"{file.address}: its name ends in .{name}, its content is not compressed so")
    return None


@contextmanager
def open_text(file: Stored, *, compression: Compression | None) -> Iterator[BinaryIO]:
    """What a file holds once it is decompressed.

    Raises:
        CorpusError: the file is cut off or damaged, told while it is read.
    """
    with reading(file.address), open_file(file) as opened:
        try:
            yield _decompressed(opened, compression=compression)
        except (EOFError, zlib.error, OSError) as error:
            if compression is None or (isinstance(error, OSError) and error.errno is not None):
                raise
            raise CorpusError(f"{file.address}: its .{compression} data is cut off or damaged ({error})") from None


def _decompressed(file: BinaryIO, *, compression: Compression | None) -> BinaryIO:
    match compression:
        case None:
            return file
        case "gz":
            import gzip

            return cast(BinaryIO, gzip.GzipFile(fileobj=file))
        case "zst":
            import pyarrow as pa

            return cast(BinaryIO, io.BufferedReader(pa.CompressedInputStream(file, "zstd"), BLOCK_BYTES))
