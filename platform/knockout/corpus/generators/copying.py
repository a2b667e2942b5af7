"""Copying: a random string, and the same string again.

The invariant: the string's length and each of its symbols are drawn independently, and `nats` is their entropy; everything
after the first separator follows. So the least loss that any model can expect is known exactly, and copying costs nothing.

A document of a string of 3 symbols (a … d; / is the separator; $ is end-of-text, which the encoder puts in), told again
twice, when each length of 2 … 4 is equally likely:

    token     b     a       d      /    b  a  d  /  b  a  d  $
    chance   1/4   1/4  2/3 · 1/4 1/2               1

The string and its separator are a period of the document. With A symbols and lengths of entropy H(n) and mean E[n] a
document costs H(n) + E[n] ln A, for the length and the symbols given it are all that is drawn (the chain rule, Cover and
Thomas, "Elements of Information Theory", 2006, theorem 2.2.1), and fills (E[n] + 1)(copies + 1) tokens. A geometric length
of mean m has the entropy m h(1/m), with h that of a coin.

It is the copy task of Graves, Wayne and Danihelka ("Neural Turing Machines", 2014, section 4.1). A transformer of two layers
can copy strings of a length exponential in its size; a model whose state has a fixed size cannot (Jelassi et al., "Repeat
after me: transformers are better than state space models at copying", 2024, abstract).

Symbols are numbered 0 … A - 1, and the separator A.

Shapes: D documents, M longest string.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from knockout.corpus.generators.drawing import DOCUMENTS, Ladder, choices, groups, stream
from knockout.declare.generators import Copy, FixedLength, GeometricLength, UniformLength

SMALLEST = 2.0**-60
"""Geometric lengths are cut where what is left is less likely than can be drawn."""


def documents(source: Copy) -> Iterator[np.ndarray]:
    """The documents, int64 [length of each]."""
    for group, count in enumerate(groups(source.documents, length=math.ceil(mean_length(source)))):
        yield from _generate(source, random=stream(source.seed, purpose=DOCUMENTS, part=group), count=count)


def mean_length(source: Copy) -> float:
    """Symbols in a document on average, (E[n] + 1)(copies + 1) - 1."""
    return (source.length.mean + 1) * (source.copies + 1) - 1


def nats(source: Copy) -> float:
    """Entropy of a document, H(n) + E[n] ln A."""
    return _length_nats(source) + source.length.mean * math.log(source.symbols)


def _length_nats(source: Copy) -> float:
    match source.length:
        case FixedLength():
            return 0.0
        case UniformLength(least=least, most=most):
            return math.log(most - least + 1)
        case GeometricLength(mean=mean):
            going = 1.0 - 1.0 / mean
            return math.log(mean) - (mean - 1.0) * math.log(going) if going else 0.0


def _generate(source: Copy, *, random: np.random.Generator, count: int) -> Iterator[np.ndarray]:
    lengths_D = _lengths(source, random=random, count=count)
    symbols = choices(random, shape=(int(lengths_D.sum()),), among=source.symbols)
    for string in np.split(symbols, np.cumsum(lengths_D)[:-1]):
        period = np.append(string, source.symbols)
        yield np.tile(period, source.copies + 1)[:-1]


def _lengths(source: Copy, *, random: np.random.Generator, count: int) -> np.ndarray:
    match source.length:
        case FixedLength(symbols=symbols):
            return np.full(count, symbols)
        case UniformLength(least=least, most=most):
            return least + choices(random, shape=(count,), among=most - least + 1)
        case GeometricLength(mean=mean):
            return 1 + Ladder.of([_geometric(mean)]).draw(random, rows_N=np.zeros(count, np.int64))


def _geometric(mean: float) -> list[float]:
    chances, left = [], 1.0
    while left > SMALLEST:
        chances.append(left / mean)
        left -= chances[-1]
    return chances
