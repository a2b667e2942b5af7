"""Look-up in several hops: where do h steps of a function lead?

The invariant: every document that the task allows is equally likely, and `nats` is the logarithm of their number; so the
least loss that any model can expect is known exactly, and answers cost nothing of it.

A document of n = 4 links over S symbols, with 3 queries of at most H = 2 hops (a … d are symbols; 1 and 2 say how many hops;
$ is end-of-text, which the encoder puts in). It tells a → d → b → c → a in random order, and then asks:

    token     c  a    a  d    d  b    b  c    2  d  c    1  a  d    2  b  a    $
              └──────── links ───────┘    h  x  answer

The function is a random cycle through n of the symbols: S! / (S - n)! / n of them, told in n! orders. Each query is one of
H hops from one of n symbols, (n H)^queries; answers and end-of-text follow. As every symbol of the cycle is led to once, and
at most n / 2 hops lead back to no symbol on the way, only following the function says more of an answer than that it is
another symbol of the cycle.

Symbols are numbered 0 … S - 1, and h hops S + h - 1. It is like the k-hop induction of Sanford, Hsu and Telgarsky
("Transformers, parallel computation, and logarithmic depth", 2024), on pairs: one after the other h hops take h look-ups,
and a network that doubles its steps needs about log2 h. Whether depth gains at as few hops as these is a question for an
experiment.

Shapes: D documents, N links, Q queries, L symbols in a document.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from knockout.corpus.generators.drawing import DOCUMENTS, choices, groups, orders, stream
from knockout.declare.generators import Composition


def documents(source: Composition) -> Iterator[np.ndarray]:
    """The documents, int64 [L] each."""
    for group, count in enumerate(groups(source.documents, length=length(source))):
        yield from _generate(source, random=stream(source.seed, purpose=DOCUMENTS, part=group), count=count)


def length(source: Composition) -> int:
    """Symbols in a document, L = 2N + 3Q."""
    return 2 * source.links + 3 * source.queries


def nats(source: Composition) -> float:
    """Entropy of a document: the logarithm of how many there are."""
    cycles = math.log(math.perm(source.symbols, source.links)) - math.log(source.links)
    orders_told = math.log(math.factorial(source.links))
    return cycles + orders_told + source.queries * math.log(source.links * source.hops)


def _generate(source: Composition, *, random: np.random.Generator, count: int) -> np.ndarray:
    n = source.links
    cycle_DN = orders(random, documents=count, size=source.symbols)[:, :n]
    told_DN = orders(random, documents=count, size=n)
    hops_DQ = 1 + choices(random, shape=(count, source.queries), among=source.hops)
    asked_DQ = choices(random, shape=(count, source.queries), among=n)

    def led(places: np.ndarray, hops: np.ndarray | int) -> np.ndarray:
        return np.take_along_axis(cycle_DN, (places + hops) % n, axis=1)

    links = np.stack([led(told_DN, 0), led(told_DN, 1)], axis=2)
    queries = np.stack([source.symbols - 1 + hops_DQ, led(asked_DQ, 0), led(asked_DQ, hops_DQ)], axis=2)
    return np.concatenate([links.reshape(count, -1), queries.reshape(count, -1)], axis=1)
