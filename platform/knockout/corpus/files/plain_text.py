"""Text files: each is one document, or is cut into documents at a separator.

The invariant: documents are the pieces between leftmost separators of the text whose lines end in a line feed, wherever the
file is cut to be read in parts.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from functools import partial
from typing import BinaryIO

from knockout.corpus.files.compression import Compression, compression_of, open_text
from knockout.corpus.files.outcomes import Document, Fault, Skipped, refusal, skips
from knockout.corpus.files.stores import BLOCK_BYTES, Stored, open_slice, reading
from knockout.corpus.text import normalise
from knockout.declare.text_sources import Files, PythonSource
from knockout.errors import CorpusError

WINDOW_BYTES = 2**16


def read_whole(source: Files | PythonSource, *, file: Stored) -> Iterator[Document | Skipped]:
    """The documents of one file; with a separator, in memory for the longest one alone.

    Raises:
        CorpusError: the file cannot be read or decompressed, or a document is not UTF-8.
    """
    compression = compression_of(file) if isinstance(source, Files) else None
    with open_text(file, compression=compression) as opened:
        yield from _documents(source, _pieces(opened, source=source), file=file, compression=compression)


def read_slice(source: Files, *, file: Stored, first: int, last: int) -> Iterator[Document | Skipped]:
    """The documents of a file from one cut to the next; a slice that is not the file's end ends in a separator."""
    with reading(file.address), open_slice(file, first=first, last=last) as opened:
        pieces = _pieces(opened, source=source)
        whole = pieces if last >= file.size else _without_last(pieces)
        yield from _documents(source, whole, file=file, compression=None)


def cuts(file: BinaryIO, *, separator: str, size: int, chunk_bytes: int) -> Iterator[int]:
    """Where a file may be cut, about every `chunk_bytes`: right after separators that no earlier one overlaps.

    Such a one is found from the left whatever comes before, so that both sides of a cut are searched as the whole file is.
    """
    pattern = re.compile(b"(?=(" + b"".join(map(_as_written, separator)) + b"))", re.DOTALL)
    longest = 2 * len(separator.encode())
    at = chunk_bytes
    while at < size:
        found = _first_cut(file, pattern, start=at, size=size, longest=longest)
        if found is None or found >= size:
            return
        yield found
        at = found + chunk_bytes


def _as_written(character: str) -> bytes:
    """How a separator's character may stand in a file: a line feed also as CR or CR LF, and never as half of one."""
    return rb"(?:\r\n?+|(?<!\r)\n)" if character == "\n" else re.escape(character.encode())


def _first_cut(file: BinaryIO, pattern: re.Pattern[bytes], *, start: int, size: int, longest: int) -> int | None:
    """The end of the first separator from `start` on that overlaps no earlier one."""
    base = max(0, start - 2 * longest - 1)
    before = -1
    while base < size:
        file.seek(base)
        window = file.read(WINDOW_BYTES + 4 * longest)
        for found in pattern.finditer(window):
            begin, end = base + found.start(), base + found.end(1)
            if end >= base + len(window) and end < size:
                break
            if begin >= start and begin >= before:
                return end
            before = max(before, end)
        if base + len(window) >= size:
            return None
        base += WINDOW_BYTES
        start = max(start, base)
    return None


def _pieces(file: BinaryIO, *, source: Files | PythonSource) -> Iterator[bytes]:
    if isinstance(source, PythonSource) or source.separator is None:
        yield file.read()
        return
    separator = source.separator.encode()
    text, searched = bytearray(), 0
    for block in _with_line_feeds(file):
        text += block
        while (found := text.find(separator, searched)) >= 0:
            yield bytes(text[:found])
            del text[: found + len(separator)]
            searched = 0
        searched = max(0, len(text) - len(separator) + 1)
    yield bytes(text)


def _with_line_feeds(file: BinaryIO) -> Iterator[bytes]:
    held = b""
    while block := file.read(BLOCK_BYTES):
        block = held + block
        held = b"\r" if block.endswith(b"\r") else b""
        block = block.removesuffix(held)
        yield block.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in block else block
    if held:
        yield b"\n"


def _without_last(pieces: Iterator[bytes]) -> Iterator[bytes]:
    waiting = next(pieces)
    for piece in pieces:
        yield waiting
        waiting = piece


def _documents(
    source: Files | PythonSource, pieces: Iterator[bytes], *, file: Stored, compression: Compression | None
) -> Iterator[Document | Skipped]:
    read = partial(normalise, form="none" if isinstance(source, PythonSource) else source.unicode)
    for piece in pieces:
        try:
            text = read(piece)
        except UnicodeDecodeError as error:
            fault = Fault("undecodable", f"not UTF-8 text ({error.reason})")
            if not skips(source, fault=fault):
                raise _first_fault(file, compression=compression, otherwise=fault) from None
            yield Skipped("undecodable")
        else:
            yield text or Skipped("empty")


def _first_fault(file: Stored, *, compression: Compression | None, otherwise: Fault) -> CorpusError:
    """The error that names the first line and byte of a file that are not UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    lines = done = 0
    with open_text(file, compression=compression) as opened:
        while True:
            block = opened.read(BLOCK_BYTES)
            pending = len(decoder.getstate()[0])
            try:
                decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                at = done - pending + error.start
                line = lines + block.count(b"\n", 0, max(0, error.start - pending)) + 1
                fault = Fault("undecodable", f"not UTF-8 text ({error.reason})")
                return refusal(fault, where=f"{file.address}: line {line}, byte {at}")
            if not block:
                return refusal(otherwise, where=file.address)
            lines += block.count(b"\n")
            done += len(block)
