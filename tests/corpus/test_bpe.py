from __future__ import annotations

import re
import sysconfig
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from knockout.corpus.encoding import bpe
from knockout.corpus.encoding.bpe import TOKENIZER, BpeEncoder, check_merges
from knockout.corpus.text import pieces

Ids = Callable[[str], list[int]]


@pytest.fixture(scope="module")
def peers(small) -> tuple[Ids, Ids]:
    """Our encoder, and `tokenizers` itself, with the same merges."""
    encoder = BpeEncoder(small.folder / TOKENIZER, vocabulary=512)
    tokenizer = Tokenizer.from_file(str(small.folder / TOKENIZER))

    def theirs(text: str) -> list[int]:
        parts = [piece.decode() for piece in pieces(text.encode(), limit=bpe.PIECE_BYTES)]
        return [number for part in parts for number in tokenizer.encode(part, add_special_tokens=False).ids]

    return lambda text: encoder.encode([text.encode()])[0].tolist(), theirs


@cache
def code_points() -> list[str]:
    """All of planes 0 to 3 and 14, where characters are assigned, and some of the others."""
    assigned = [*range(0x40000), *range(0xE0000, 0xF0000)]
    others = [*range(0x40000, 0xE0000, 997), *range(0xF0000, 0x110000, 997)]
    return [chr(number) for number in assigned + others if not 0xD800 <= number < 0xE000]


def test_every_code_point_is_cut_and_numbered_as_tokenizers_does_it(peers):
    ours, theirs = peers
    context = "{0}a{0}1 {0}{0}.\n"
    characters = code_points()
    for first in range(0, len(characters), 8192):
        block = characters[first : first + 8192]
        text = "".join(context.format(character) for character in block)
        if ours(text) != theirs(text):
            wrong = [
                character for character in block if ours(context.format(character)) != theirs(context.format(character))
            ]
            pytest.fail(f"cut differently: {', '.join(f'U+{ord(character):04X}' for character in wrong)}")


words = st.sampled_from(
    ["def ", "self", " the", "    ", "\n\n", "'re", "é", "日本", "🏳️‍🌈", "\u0301", "1234", "==", "\t", "\u00a0"]
)


@settings(max_examples=200, deadline=None)
@given(text=st.one_of(st.text(st.characters(exclude_categories=["Cs"])), st.lists(words).map("".join)))
def test_any_text_has_the_numbers_that_tokenizers_gives(peers, text):
    ours, theirs = peers
    assert not text or ours(text) == theirs(text)


def test_real_code_has_the_numbers_that_tokenizers_gives(peers):
    ours, theirs = peers
    files = sorted(Path(sysconfig.get_paths()["stdlib"], "test").glob("test_[a-d]*.py"))[:20]
    texts = [path.read_text("utf-8") for path in files if path.name != "test_source_encoding.py"]
    assert sum(map(len, texts)) > 200_000
    for text in texts:
        assert ours(text) == theirs(text)


@pytest.mark.parametrize("unit", ["\n", "^"])
def test_a_million_times_the_same_is_encoded_like_any_text(peers, unit):
    ours, theirs = peers
    text = "begin" + unit * (1_200_000 // len(unit.encode())) + "end"
    assert ours(text) == theirs(text)


def test_white_space_that_the_pattern_has_no_stack_for_is_cut_where_a_word_ends(peers, monkeypatch):
    monkeypatch.setattr(bpe, "MAX_SPACES", 10)
    monkeypatch.setattr(bpe, "LONG_SPACES", re.compile(bpe.LONG_SPACES.pattern.replace("1000", "2")))
    ours, theirs = peers
    for spaces in (" " * 11, "\n" * 40, "\t \u2003" * 9):
        for after in ("word", "", ".", "1", "'s"):
            for text in (f"a word{spaces}{after}", f"{spaces}{after}", f"a{spaces}b{spaces}{after}"):
                assert ours(text) == theirs(text)


def test_the_merges_that_are_learnt_are_ones_that_both_follow(small):
    check_merges(Tokenizer.from_file(str(small.folder / TOKENIZER)))


def test_merges_that_ranks_alone_do_not_tell_are_refused():
    """`abc` comes from a and bc; but ab is merged first, tokenizers leaves ab and c alone, and tiktoken merges them."""
    alphabet = {character: number for number, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    numbers = alphabet | {"ab": 256, "bc": 257, "abc": 258}
    tokenizer = Tokenizer(models.BPE(vocab=numbers, merges=[("a", "b"), ("b", "c"), ("a", "bc")]))
    with pytest.raises(RuntimeError, match="own token 'abc' is not encoded as itself"):
        check_merges(tokenizer)


def test_half_a_character_is_decoded_to_its_bytes(small):
    encoder = BpeEncoder(small.folder / TOKENIZER, vocabulary=512)
    tokens = encoder.encode(["日".encode()])[0]
    assert len(tokens) == 3
    assert encoder.decode(np.array(tokens[:2])) == "日".encode()[:2]
