"""Dyck languages: brackets of several kinds, closed in the reverse order in which they were opened.

The invariant: which tokens may come next and how likely they are depends on the open brackets alone, and `nats` is the
entropy of these choices; so the least loss that any model can expect is known exactly, and no model gains by counting.

A document of k = 2 kinds, at most m = 2 open at once, with probabilities p that another opens and 1/G that the document
ends after an outermost pair ($ is end-of-text, which the encoder puts in):

    token     (     [    ]    (    )    )         [         ]     $
    chance   1/k   p/k   1   p/k   1   1-p   (1 - 1/G)/k   1-p   1/G

Which kind closes costs nothing to whoever remembers what is open. The language is Dyck-(k, m), which a recurrent network
generates with O(m log k) hidden units and no less (Hewitt et al., "RNNs can generate bounded hierarchical languages with
optimal memory", 2020, abstract), and a network of two layers of soft attention with O(log k) (Yao et al., "Self-attention
networks can process bounded hierarchical languages", 2021, abstract). With a depth of null it is Dyck-k, which no finite
memory holds (Suzgun et al., "Memory-augmented recurrent neural networks can learn generalized Dyck languages", 2019, draw it
from a grammar too).

The floor: with U_d the mean number of brackets that open where d are open, as many brackets come back to depth d as left it,
so that depth d ≥ 1 is passed U_{d-1} + U_d times, of which the share p opens: U_d = U_{d-1} p / (1 - p). From U_0 = G follow

    pairs = G (1 + r + … + r^(m-1))        r = p / (1 - p)
    choices inside = G / (1 - p) (1 + r + … + r^(m-2))
    nats = pairs ln k + choices h(p) + G h(1/G)

with h the entropy of a coin and both sums endless where depth is not bounded, which takes p < 1/2. A document fills
2 pairs + 1 tokens.

Brackets that open are numbered 0 … k - 1, those that close them k … 2k - 1.

Shapes: D documents, N brackets of all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from knockout.corpus.generators.drawing import DOCUMENTS, by_document, choices, coins, groups, stream
from knockout.declare.generators import Dyck


def documents(source: Dyck) -> Iterator[np.ndarray]:
    """The documents, int64 [length of each]."""
    for group, count in enumerate(groups(source.documents, length=math.ceil(mean_length(source)))):
        yield from _generate(source, random=stream(source.seed, purpose=DOCUMENTS, part=group), count=count)


def mean_length(source: Dyck) -> float:
    """Symbols in a document on average: two of each pair."""
    return 2.0 * source.pairs


def nats(source: Dyck) -> float:
    """Entropy of a document: of kinds, of whether another opens inside, and of whether the document ends."""
    inside = (source.pairs - source.groups * _deepest(source)) / (1.0 - source.opens)
    return source.pairs * math.log(source.brackets) + inside * _coin(source.opens) + source.groups * _coin(1 / source.groups)


def _deepest(source: Dyck) -> float:
    """Of the powers of r those that no choice follows: r^(m-1), or none."""
    return 0.0 if source.depth is None else (source.opens / (1.0 - source.opens)) ** (source.depth - 1)


def _coin(chance: float) -> float:
    return -sum(p * math.log(p) for p in (chance, 1.0 - chance) if p > 0.0)


def _generate(source: Dyck, *, random: np.random.Generator, count: int) -> list[np.ndarray]:
    documents_N, opens_N = _walks(source, random=random, count=count)
    walks = by_document(opens_N, documents_N=documents_N, count=count)
    opens_N = np.concatenate(walks)
    kinds_N = np.empty(len(opens_N), np.int64)
    kinds_N[opens_N] = choices(random, shape=(len(opens_N) // 2,), among=source.brackets)
    opening, closing = _pairs(opens_N)
    kinds_N[closing] = source.brackets + kinds_N[opening]
    return np.split(kinds_N, np.cumsum([len(walk) for walk in walks])[:-1])


def _walks(source: Dyck, *, random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """All documents' brackets, step by step: whose each is, and whether it opens."""
    alive_D, depths_D = np.arange(count), np.zeros(count, np.int64)
    whose: list[np.ndarray] = []
    which: list[np.ndarray] = []
    while len(alive_D):
        opens_D = coins(random, count=len(alive_D), chance=source.opens) | (depths_D == 0)
        if source.depth is not None:
            opens_D &= depths_D < source.depth
        whose.append(alive_D)
        which.append(opens_D)
        depths_D = depths_D + np.where(opens_D, 1, -1)
        ends_D = coins(random, count=len(alive_D), chance=1.0 / source.groups) & (depths_D == 0)
        alive_D, depths_D = alive_D[~ends_D], depths_D[~ends_D]
    return np.concatenate(whose), np.concatenate(which)


def _pairs(opens_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places of brackets that open, and of those that close them: at each depth they take turns."""
    depths_N = np.cumsum(np.where(opens_N, 1, -1)) + ~opens_N
    order = np.argsort(depths_N, kind="stable")
    return order[::2], order[1::2]
