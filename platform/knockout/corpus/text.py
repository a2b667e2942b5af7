"""Bytes from a file to a document's text.

The invariant: a document is UTF-8 without a byte-order mark, its lines end in a line feed, and what is not
UTF-8 is refused, never repaired.
"""

from __future__ import annotations

import codecs
import unicodedata
from typing import Literal

from knockout.declare.text_sources import Unicode

BOM = b"\xef\xbb\xbf"
MAX_CHARACTER_BYTES = 4
PIECE_BYTES = 2**20
FORMS: dict[Unicode, Literal["NFC", "NFD", "NFKC", "NFKD"]] = {"nfc": "NFC", "nfd": "NFD", "nfkc": "NFKC", "nfkd": "NFKD"}


def normalise(raw: bytes, *, form: Unicode = "none") -> bytes:
    """A document's text as UTF-8 with `\\n` line ends, in a declared Unicode normalisation form.

    Raises:
        UnicodeDecodeError: it is not UTF-8.
    """
    _check_utf8(raw)
    return tidy(raw, form=form)


def tidy(text: bytes, *, form: Unicode) -> bytes:
    """What `normalise` makes of bytes that are UTF-8."""
    text = text.removeprefix(BOM)
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if form == "none" or text.isascii():
        return text
    return unicodedata.normalize(FORMS[form], text.decode("utf-8")).encode()


def _check_utf8(raw: bytes) -> None:
    """Refuse what is not UTF-8; a long text is decoded piece by piece, never as a whole."""
    if len(raw) <= PIECE_BYTES:
        raw.decode("utf-8")
        return
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(raw), PIECE_BYTES):
        piece = raw[start : start + PIECE_BYTES]
        pending = len(decoder.getstate()[0])
        try:
            decoder.decode(piece, final=start + PIECE_BYTES >= len(raw))
        except UnicodeDecodeError as error:
            place = start - pending + error.start
            raise UnicodeDecodeError("utf-8", raw, place, place + error.end - error.start, error.reason) from None


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
