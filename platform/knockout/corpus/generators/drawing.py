"""What generated documents are drawn with.

The invariant: a stream is a pure function of (seed, purpose, part). `choices`, `orders`, `coins` and a `Ladder` take its raw
64-bit integers and nothing else, so that they are the same for every numpy and machine.

Shapes: D documents, N numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

TABLE, DOCUMENTS = 0, 1
"""What a random stream is for."""
DRAW_BITS = 53
"""Probabilities are drawn as multiples of 2^-53."""
GROUP_SYMBOLS = 2**21
"""About how many symbols are generated together."""


def stream(seed: int, *, purpose: int, part: int = 0) -> np.random.Generator:
    """The random stream of one purpose's part: Philox, keyed by all three."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, purpose, part])))


def groups(documents: int, *, length: int) -> Iterator[int]:
    """How many documents of about `length` symbols are generated together, group by group."""
    size = max(1, GROUP_SYMBOLS // length)
    for first in range(0, documents, size):
        yield min(size, documents - first)


def choices(random: np.random.Generator, *, shape: tuple[int, ...], among: int) -> np.ndarray:
    """Numbers of 0 … among - 1, int64; each equally likely up to among / 2^64."""
    return (_raw(random, shape) % np.uint64(among)).astype(np.int64)


def orders(random: np.random.Generator, *, documents: int, size: int) -> np.ndarray:
    """Random orders of 0 … size - 1, int64 [D, size]: the ranks of random 64-bit integers."""
    return np.argsort(_raw(random, (documents, size)), axis=1, kind="stable")


def coins(random: np.random.Generator, *, count: int, chance: float) -> np.ndarray:
    """Whether each of some coins falls, bool [count]; each with probability `chance`."""
    return _fractions(random, count) < np.uint64(int(chance * 2**DRAW_BITS))


@dataclass(frozen=True, eq=False)
class Ladder:
    """Rows of probabilities on one line of integers, row r from r 2^53 to (r + 1) 2^53: one search draws for all."""

    steps: np.ndarray
    firsts: np.ndarray

    @classmethod
    def of(cls, rows: Sequence[Sequence[float]]) -> Ladder:
        """Rows of at most 2,047 distributions, each brought to a sum of 1."""
        steps: list[int] = []
        firsts: list[int] = []
        for row, chances in enumerate(rows):
            firsts.append(len(steps))
            summed = list(accumulate(chances))
            steps += [(row << DRAW_BITS) + int(up / summed[-1] * 2**DRAW_BITS) for up in summed]
        return cls(np.array(steps, np.uint64), np.array(firsts, np.int64))

    def draw(self, random: np.random.Generator, *, rows_N: np.ndarray) -> np.ndarray:
        """One alternative of each row, int64 [N], counted through all rows: less `firsts`, through its own."""
        wanted_N = (rows_N.astype(np.uint64) << np.uint64(DRAW_BITS)) + _fractions(random, len(rows_N))
        return np.searchsorted(self.steps, wanted_N, side="right")


def by_document(parts_N: np.ndarray, *, documents_N: np.ndarray, count: int) -> list[np.ndarray]:
    """What was drawn for several documents at once, in the order of drawing, one row for each of them."""
    order = np.argsort(documents_N, kind="stable")
    ends = np.cumsum(np.bincount(documents_N, minlength=count))
    return np.split(parts_N[order], ends[:-1])


def _fractions(random: np.random.Generator, count: int) -> np.ndarray:
    return _raw(random, (count,)) >> np.uint64(64 - DRAW_BITS)


def _raw(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return random.bit_generator.random_raw(int(np.prod(shape))).reshape(shape)
