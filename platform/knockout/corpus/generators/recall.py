"""Associative recall: values asked for by their keys, at a distance.

The invariant: every token is drawn uniformly from the choices that are left at its place, and `nats` is the sum of their
logarithms; so the least loss that any model can expect is known exactly, and answers cost nothing of it.

A document of P = 3 pairs, a distance of 2, and 3 queries (a, b, c, d are keys; 1 … 9 values; · is the blank; $ is
end-of-text, which the encoder puts in):

    token     b    4    d    7    a    4    ·    ·    d    7    b    4    d    7    $
    choices   K    V   K-1   V   K-2   V    1    1    P    1    P    1    P    1    1

Keys are numbered 0 … K - 1, values K … K + V - 1, and the blank K + V. The task is multi-query associative recall (Arora et
al., "Zoology: measuring and improving recall in efficient language models", 2023) with one distance for all. Which value
belongs to a key is told by its left neighbour alone: one layer can bring a key to its value and a second find it. Of the
like induction heads task it is proved that one layer does it only at a size exponentially larger than two (Sanford et al.,
"One-layer transformers fail to solve the induction heads task", 2024, abstract).

Shapes: D documents, P pairs, Q queries, K keys, V values, L symbols in a document.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from knockout.corpus.generators.drawing import DOCUMENTS, choices, groups, orders, stream
from knockout.declare.generators import Recall


def documents(source: Recall) -> Iterator[np.ndarray]:
    """The documents, int64 [L] each."""
    for group, count in enumerate(groups(source.documents, length=length(source))):
        yield from _generate(source, random=stream(source.seed, purpose=DOCUMENTS, part=group), count=count)


def length(source: Recall) -> int:
    """Symbols in a document, L = 2P + distance + 2Q."""
    return 2 * source.pairs + source.distance + 2 * source.queries


def nats(source: Recall) -> float:
    """Entropy of a document: the logarithm of how many there are."""
    keys = math.log(math.perm(source.keys, source.pairs))
    return keys + source.pairs * math.log(source.values) + source.queries * math.log(source.pairs)


def _generate(source: Recall, *, random: np.random.Generator, count: int) -> np.ndarray:
    keys_DP = orders(random, documents=count, size=source.keys)[:, : source.pairs]
    values_DP = source.keys + choices(random, shape=(count, source.pairs), among=source.values)
    asked_DQ = choices(random, shape=(count, source.queries), among=source.pairs)
    pairs = np.stack([keys_DP, values_DP], axis=2).reshape(count, -1)
    blanks = np.full((count, source.distance), source.alphabet - 1)
    found = [np.take_along_axis(part_DP, asked_DQ, axis=1) for part_DP in (keys_DP, values_DP)]
    return np.concatenate([pairs, blanks, np.stack(found, axis=2).reshape(count, -1)], axis=1)
