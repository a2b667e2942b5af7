"""The word problem of a symmetric group: where do swaps, one after the other, take each point?

The invariant: each length of a word is equally likely, and so is each letter at each place; `nats` is the entropy of these
choices, and everything else follows from them. So the least loss that any model can expect is known exactly, and answers
cost nothing of it.

A word is 1 … K swaps of two of P points, done from left to right; then come an equals sign and the word's product, told
point by point. A document of W = 2 words of at most K = 3 letters over P = 4 points (C = P (P - 1) / 2 is the number of
swaps; $ is end-of-text, which the encoder puts in):

    token     12    23    =    1 3  2 1  3 2  4 4    34    =    1 1  2 2  3 4  4 3    $
              └─ word ─┘       └──── product ───┘
    chance   1/C 2/(3C)  1/2           1            1/C   1/3           1             1

After m letters a word ends with probability 1 / (K + 1 - m). Which point is next, its image, and where the document ends
follow from what came before. Images that are told already exclude themselves, and the last two follow from the others and
the word's parity; the first P - 2 take the word itself. What a swap does is the same in all documents, so that a network
can keep it in its weights.

Swaps are numbered 0 … C - 1 in the order 12, 13, … 23, …; points C … C + P - 1; and the equals sign C + P.

A transformer whose depth grows as the logarithm of a word's length can simulate every finite automaton, and one of constant
depth those whose groups are solvable, as those of up to 4 points are (Liu et al., "Transformers learn shortcuts to
automata", 2023, abstract). From 5 points on no fixed depth serves all lengths, unless TC0 is NC1 (Merrill, Petty and
Sabharwal, "The illusion of state in state-space models", 2024, whose first figure is this task). Language models trained on
swaps learn such a scan, some of them with parity as a shortcut (Li, Guo and Andreas, "(How) do language models track
state?", 2025, abstract). Those bounds hold as words grow: what depth gains on words as short as these is a question for an
experiment.

Shapes: D documents, W words, K letters at most, P points, C swaps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations

import numpy as np

from knockout.corpus.generators.drawing import DOCUMENTS, choices, groups, stream
from knockout.declare.generators import WordProblem


def documents(source: WordProblem) -> Iterator[np.ndarray]:
    """The documents, int64 [length of each]."""
    longest = source.words * (source.length + 1 + 2 * source.points)
    for group, count in enumerate(groups(source.documents, length=longest)):
        yield from _generate(source, random=stream(source.seed, purpose=DOCUMENTS, part=group), count=count)


def mean_length(source: WordProblem) -> float:
    """Symbols in a document on average, W ((K + 1) / 2 + 1 + 2P)."""
    return source.words * ((source.length + 1) / 2 + 1 + 2 * source.points)


def nats(source: WordProblem) -> float:
    """Entropy of a document, W (ln K + (K + 1) / 2 ln C): of its words' lengths and letters."""
    return source.words * (math.log(source.length) + (source.length + 1) / 2 * math.log(source.swaps))


def _generate(source: WordProblem, *, random: np.random.Generator, count: int) -> list[np.ndarray]:
    shape = (count, source.words)
    lengths_DW = 1 + choices(random, shape=shape, among=source.length)
    letters_DWK = choices(random, shape=(*shape, source.length), among=source.swaps)
    spelt_DWK = np.arange(source.length) < lengths_DW[..., None]
    told = _told(_images(letters_DWK, spelt_DWK=spelt_DWK, points=source.points), source=source)
    symbols = np.concatenate([letters_DWK, told], axis=2)
    kept = np.concatenate([spelt_DWK, np.ones_like(told, dtype=bool)], axis=2)
    return np.split(symbols[kept], np.cumsum(kept.sum(axis=(1, 2)))[:-1])


def _images(letters_DWK: np.ndarray, *, spelt_DWK: np.ndarray, points: int) -> np.ndarray:
    """Where each word takes each point, [D, W, P]."""
    pairs_C2 = np.array(list(combinations(range(points), 2)))
    swaps_CP = np.tile(np.arange(points), (len(pairs_C2), 1))
    np.put_along_axis(swaps_CP, pairs_C2, pairs_C2[:, ::-1], axis=1)
    images_DWP = np.broadcast_to(np.arange(points), (*letters_DWK.shape[:2], points))
    for place in range(letters_DWK.shape[2]):
        moved_DWP = np.take_along_axis(swaps_CP[letters_DWK[..., place]], images_DWP, axis=2)
        images_DWP = np.where(spelt_DWK[..., place, None], moved_DWP, images_DWP)
    return images_DWP


def _told(images_DWP: np.ndarray, *, source: WordProblem) -> np.ndarray:
    """An equals sign, then each point and its image, [D, W, 1 + 2P]."""
    points_DWP = np.broadcast_to(np.arange(source.points), images_DWP.shape)
    pairs = source.swaps + np.stack([points_DWP, images_DWP], axis=3).reshape(*images_DWP.shape[:2], -1)
    return np.insert(pairs, 0, source.alphabet - 1, axis=2)
