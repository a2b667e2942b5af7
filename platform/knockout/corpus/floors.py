"""What counting alone achieves on the exam: unigram and bigram cross-entropy in nats per token.

The invariant: the models are fitted on training tokens and scored on exactly the tokens that the exam
predicts. Every token of the vocabulary has a probability above zero.

Interpolated Witten-Bell smoothing (Witten and Bell, "The zero-frequency problem", 1991, method C; Chen and
Goodman, "An empirical study of smoothing techniques", 1999, equations 14 and 15): with c(h, w) counts, c(h)
their sum and t(h) the number of different tokens seen after h, P(w | h) = (c(h, w) + t(h) P'(w)) / (c(h) +
t(h)). P' is the unigram model, and the unigram's own P' is uniform.

Shapes: N training tokens, S segments of L tokens, M predicted tokens, V vocabulary,
P different pairs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

MAX_FIT_TOKENS = 50_000_000
"""Training tokens that the models are fitted on, from the first."""
MAX_DENSE_PAIRS = 2**24
"""Largest V² that a table of pairs is held for; above, the different pairs are held."""


Numbers = np.ndarray | float


@dataclass(frozen=True)
class CountingFloors:
    """Cross-entropies in nats per token."""

    unigram: float
    bigram: float


def counting_floors(blocks: Iterable[np.ndarray], *, exam_SL: np.ndarray, vocabulary: int) -> CountingFloors:
    """Fit on training tokens, block after block, and score the tokens of each of the exam's segments from its second on."""
    counts = PairCounts(exam_SL, vocabulary=vocabulary)
    for tokens_N in blocks:
        counts.add(tokens_N)
    return counts.floors()


class PairCounts:
    """Counts of tokens and pairs, in memory for the vocabulary and the different pairs alone."""

    def __init__(self, exam_SL: np.ndarray, *, vocabulary: int) -> None:
        self._previous_M = exam_SL[:, :-1].ravel().astype(np.int64)
        self._next_M = exam_SL[:, 1:].ravel().astype(np.int64)
        wanted_M = self._previous_M * vocabulary + self._next_M
        self.vocabulary = vocabulary
        self._wanted, self._places_M = np.unique(wanted_M, return_inverse=True)
        self._last_N = np.zeros(0, np.int64)
        self._table = np.zeros(vocabulary**2, np.int32) if vocabulary**2 <= MAX_DENSE_PAIRS else None
        """How often each pair occurs; else, these:"""
        self._seen = np.zeros(len(self._wanted), np.int64)
        self._heads_V = np.zeros(vocabulary, np.int64)
        self._pairs: list[np.ndarray] = []

    def add(self, tokens_N: np.ndarray) -> None:
        """Count one more block, and the pair that its first token makes with the one before."""
        joined_N = np.concatenate([self._last_N, tokens_N.astype(np.int64)])
        self._last_N = joined_N[-1:]
        pairs_N = joined_N[:-1] * self.vocabulary + joined_N[1:]
        if self._table is not None:
            np.add.at(self._table, pairs_N, np.int32(1))
        else:
            self._heads_V += np.bincount(joined_N[:-1], minlength=self.vocabulary)
            pairs_P, times_P = np.unique(pairs_N, return_counts=True)
            self._look_up(pairs_P, times_P)
            self._merge(pairs_P)

    def floors(self) -> CountingFloors:
        """The exam's cross-entropies under what was counted."""
        heads_V, kinds_V, seen = self._counted()
        tokens_V = heads_V + np.bincount(self._last_N, minlength=self.vocabulary)
        unigram_M = _witten_bell(
            seen=tokens_V[self._next_M],
            total=int(tokens_V.sum()),
            kinds=int(np.count_nonzero(tokens_V)),
            lower=1.0 / self.vocabulary,
        )
        bigram_M = _witten_bell(
            seen=seen[self._places_M],
            total=heads_V[self._previous_M],
            kinds=kinds_V[self._previous_M],
            lower=unigram_M,
        )
        return CountingFloors(float(-np.log(unigram_M).mean()), float(-np.log(bigram_M).mean()))

    def _counted(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For each token how many pairs begin with it, and how many different ones; and how often each wanted one occurs."""
        if self._table is not None:
            table_VV = self._table.reshape(self.vocabulary, self.vocabulary)
            return table_VV.sum(axis=1, dtype=np.int64), np.count_nonzero(table_VV, axis=1), self._table[self._wanted]
        different = np.unique(np.concatenate(self._pairs)) if self._pairs else np.zeros(0, np.int64)
        return self._heads_V, np.bincount(different // self.vocabulary, minlength=self.vocabulary), self._seen

    def _look_up(self, pairs_P: np.ndarray, times_P: np.ndarray) -> None:
        places_P = np.minimum(np.searchsorted(self._wanted, pairs_P), len(self._wanted) - 1)
        found_P = self._wanted[places_P] == pairs_P
        self._seen[places_P[found_P]] += times_P[found_P]

    def _merge(self, pairs_P: np.ndarray) -> None:
        """Keep sorted sets of falling size, so that each pair is merged a few times only."""
        while self._pairs and len(self._pairs[-1]) <= 2 * len(pairs_P):
            pairs_P = np.union1d(self._pairs.pop(), pairs_P)
        self._pairs.append(pairs_P)


def _witten_bell(*, seen: np.ndarray, total: Numbers, kinds: Numbers, lower: Numbers) -> np.ndarray:
    weight = np.asarray(total + kinds, np.float64)
    return np.where(weight > 0, (seen + kinds * lower) / np.maximum(weight, 1.0), lower)
