"""Bytes from a file to a document's text.

The invariant: a document is UTF-8 without a byte-order mark, its lines end in a line feed, and what is not
UTF-8 is refused with file, line and byte offset, never repaired.
"""

from __future__ import annotations

from dataclasses import dataclass

BOM = b"\xef\xbb\xbf"
MAX_CHARACTER_BYTES = 4


@dataclass(frozen=True)
class Undecodable:
    """A document that is not UTF-8, and where it is not."""

    reason: str


def normalise(raw: bytes, *, where: str) -> bytes | Undecodable:
    """The document's text as UTF-8 with `\\n` line ends."""
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        return Undecodable(f"{where}: line {line}, byte {error.start}: not UTF-8 text ({error.reason})")
    raw = raw.removeprefix(BOM)
    return raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in raw else raw


def pieces(text: bytes, *, limit: int) -> list[bytes]:
    """A document cut into pieces of at most `limit` (≥ 4) bytes, after line ends where there are any.

    A piece is whole UTF-8, and the pieces put together are the document.
    """
    cut: list[bytes] = []
    start = 0
    while len(text) - start > limit:
        end = text.rfind(b"\n", start, start + limit) + 1
        if end == 0:
            end = start + limit
            while text[end] & 0xC0 == 0x80:
                end -= 1
        cut.append(text[start:end])
        start = end
    cut.append(text[start:])
    return cut
