"""Text of unknown origin, made safe for a terminal.

The invariant: what comes out has no character that moves the cursor, changes direction, joins its neighbour or is invisible.
"""

from __future__ import annotations

from unicodedata import category

MARKS = {"\n": "⏎", "\t": "⇥", "\r": "␍"}
HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Unicode's general categories of controls, formats (marks of direction among them), surrogates, and separators of lines."""


def visible(content: bytes) -> str:
    """UTF-8 text on one line: line ends as ⏎, tabs as ⇥, what else cannot be seen or decoded by its code."""
    text = "".join(map(_visible, content.decode("utf-8", errors="backslashreplace")))
    return f"◌{text}" if text and category(text[0]).startswith("M") else text


def _visible(character: str) -> str:
    if character in MARKS:
        return MARKS[character]
    kind, code = category(character), ord(character)
    if kind in HIDDEN or (kind == "Zs" and character != " "):
        return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 2**16 else f"\\U{code:08x}"
    return character
