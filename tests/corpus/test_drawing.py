from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest

from knockout import project
from knockout.corpus.generators.drawing import DOCUMENTS, Ladder, by_document, coins, stream
from knockout.corpus.symbols import symbol_names
from knockout.declare.generators import Dyck, Generator, WordProblem
from knockout.declare.load import load_corpus


def raw(seed: int, count: int) -> list[int]:
    """The raw integers of a stream, as Philox gives them."""
    return np.random.Philox(np.random.SeedSequence([seed, DOCUMENTS, 0])).random_raw(count).tolist()


def test_a_ladder_draws_by_integer_arithmetic_on_the_first_53_bits():
    chances = [[0.25, 0.5, 0.125, 0.125], [1.0], [0.75, 0.25]]
    rows = np.array([0, 1, 2, 0, 2] * 200)
    drawn = Ladder.of(chances).draw(stream(3, purpose=DOCUMENTS), rows_N=rows)
    firsts = [0, 4, 5]
    for row, number, found in zip(rows.tolist(), raw(3, 1000), drawn.tolist(), strict=True):
        share = Fraction(number >> 11, 2**53)
        assert found == firsts[row] + bisect_right(list(accumulate(map(Fraction, chances[row]))), share)
    assert Ladder.of(chances).firsts.tolist() == firsts


def test_rows_that_do_not_add_up_to_1_are_brought_to_it():
    drawn = Ladder.of([[3.0, 1.0]]).draw(stream(0, purpose=DOCUMENTS), rows_N=np.zeros(40_000, np.int64))
    assert abs(drawn.mean() - 0.25) < 4 * (0.25 * 0.75 / 40_000) ** 0.5


def test_coins_fall_where_the_first_53_bits_are_below_their_chance():
    found = coins(stream(5, purpose=DOCUMENTS), count=1000, chance=0.3)
    assert found.tolist() == [Fraction(number >> 11, 2**53) < Fraction(int(0.3 * 2**53), 2**53) for number in raw(5, 1000)]
    assert not coins(stream(5, purpose=DOCUMENTS), count=1000, chance=0.0).any()
    assert coins(stream(5, purpose=DOCUMENTS), count=1000, chance=1.0).all()


def test_what_was_drawn_for_several_documents_is_told_apart_in_the_order_of_drawing():
    parts = by_document(np.array([7, 8, 9, 10]), documents_N=np.array([2, 0, 2, 0]), count=4)
    assert [part.tolist() for part in parts] == [[8, 10], [], [7, 9], []]


def generators() -> list[Generator]:
    shipped = [load_corpus(name)[0].source for name in project.names("data")]
    return [source for source in shipped if isinstance(source, Generator)] + [Dyck(brackets=2), WordProblem(points=12)]


@pytest.mark.parametrize("source", generators(), ids=lambda source: f"{source.kind}-{source.alphabet}")
def test_every_symbol_has_a_name_of_its_own_without_a_space(source):
    names = symbol_names(source)
    assert len(set(names)) == len(names) == source.alphabet
    assert not any(character.isspace() for name in names for character in name)
