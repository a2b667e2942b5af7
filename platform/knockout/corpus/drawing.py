"""What generated documents are drawn with.

The invariant: a stream is a pure function of (seed, purpose, part). `choices` and `orders` take its raw 64-bit integers
and nothing else, so that they are the same for every numpy and machine.

Shapes: D documents.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

TABLE, DOCUMENTS = 0, 1
"""What a random stream is for."""
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


def _raw(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return random.bit_generator.random_raw(int(np.prod(shape))).reshape(shape)
