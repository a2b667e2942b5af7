from __future__ import annotations

import unicodedata

import pytest

from knockout.report.escaping import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, ünïcode 日本語", "plain, ünïcode 日本語"),
        ("a\nb\tc\r\n", "a⏎b⇥c␍⏎"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("\u202eevil\u2066", "\\u202eevil\\u2066"),
        ("zero\u200bwidth\ufeff", "zero\\u200bwidth\\ufeff"),
        ("hard\u00a0space", "hard\\xa0space"),
        ("\U000e0041tag", "\\U000e0041tag"),
        ("\u0301", "◌\u0301"),
    ],
)
def test_what_cannot_be_seen_is_written_by_its_code(text, shown):
    assert visible(text.encode()) == shown


def test_bytes_that_are_no_text_are_written_by_their_codes():
    assert visible("é".encode()[:1] + b"a\xff") == "\\xc3a\\xff"


def test_no_character_of_unicode_moves_the_cursor_or_turns_the_direction():
    turning = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI", "B", "S", "BN"}
    for first in (*range(0, 0xD800, 64), *range(0xE000, 0x20000, 64), *range(0xE0000, 0xE0200, 64)):
        shown = set(visible("".join(map(chr, range(first, first + 64))).encode()))
        assert not turning & set(map(unicodedata.bidirectional, shown)), hex(first)
        assert {character for character in shown if character.isspace()} <= {" "}, hex(first)
