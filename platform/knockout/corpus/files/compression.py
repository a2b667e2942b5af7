"""Compressed text: gzip and Zstandard, told by their first bytes.

The invariant: a compressed file is read to its end or refused by name; a part of one never passes for the whole.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Literal, cast

from knockout.corpus.files.stores import BLOCK_BYTES, Stored, first_bytes, open_file, open_slice, reading
from knockout.errors import CorpusError

Compression = Literal["gz", "zst"]

MAGIC: dict[Compression, bytes] = {"gz": b"\x1f\x8b", "zst": b"\x28\xb5\x2f\xfd"}
"""First bytes of a gzip member (RFC 1952, 2.3.1) and of a Zstandard frame (RFC 8878, 3.1.1); no UTF-8 text begins so."""
TABLES = {b"PAR1": "Parquet", b"ARROW1": "Arrow", b"\xff\xff\xff\xff": "Arrow"}
"""First bytes of a Parquet file, an Arrow file and an Arrow stream . A text may begin as the first two do."""
TO_BE_SKIPPED = tuple(bytes([0x50 + low, 0x2A, 0x4D, 0x18]) for low in range(16))
"""First bytes of a frame that Zstandard skips (3.1.2), as parallel writers put first; a text may begin so."""


def compression_of(file: Stored) -> Compression | None:
    """How a file of text or JSON lines is compressed.

    Raises:
        CorpusError: its name says that it is and its content that it is not, or it is a table.
    """
    start = first_bytes(file, count=8)
    _refuse_table(file, start=start)
    for name, magic in MAGIC.items():
        if start.startswith(magic):
            return name
    if file.address.endswith(".zst") and start.startswith(TO_BE_SKIPPED):
        return "zst"
    for name in MAGIC:
        if file.address.endswith(f".{name}"):
            raise CorpusError(f"{file.address}: its name ends in .{name}, its content is not compressed so")
    return None


def _refuse_table(file: Stored, *, start: bytes) -> None:
    for magic, name in TABLES.items():
        if start.startswith(magic) and (not magic.isascii() or _ends_in(file, magic)):
            raise CorpusError(f"{file.address}: this is {name}, not text or JSON lines: write `format: {name.lower()}`")


def _ends_in(file: Stored, magic: bytes) -> bool:
    """Whether a file's last bytes are its first ones, as those of a table are."""
    if not file.is_sliceable:
        return True
    with reading(file.address), open_slice(file, first=max(0, file.size - len(magic)), last=file.size) as opened:
        return opened.read(len(magic)) == magic


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
