"""What counting alone achieves on the exam: unigram and bigram cross-entropy in nats per token.

The invariant: the models are fitted on training tokens and scored on exactly the tokens that the exam
predicts. Every token of the vocabulary has a probability above zero.

Interpolated Witten-Bell smoothing (Witten and Bell, "The zero-frequency problem", 1991, method C; Chen and
Goodman, "An empirical study of smoothing techniques", 1999, equations 14 and 15): with c(h, w) counts, c(h)
their sum and t(h) the number of different tokens seen after h, P(w | h) = (c(h, w) + t(h) P'(w)) / (c(h) +
t(h)). P' is the unigram model, and the unigram's own P' is uniform.

Shapes: N training tokens, S segments of L tokens, M predicted tokens, V vocabulary, P different pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MAX_FIT_TOKENS = 50_000_000
"""Training tokens that the models are fitted on, from the first."""
MAX_DENSE_PAIRS = 2**24
"""Largest V² that pairs are counted for in a table; above, they are sorted."""


Numbers = np.ndarray | float


@dataclass(frozen=True)
class CountingFloors:
    """Cross-entropies in nats per token."""

    unigram: float
    bigram: float


def counting_floors(train_N: np.ndarray, *, exam_SL: np.ndarray, vocabulary: int) -> CountingFloors:
    """Fit on training tokens, score the tokens of each of the exam's segments from its second on."""
    train_N = train_N[:MAX_FIT_TOKENS]
    previous_M = exam_SL[:, :-1].ravel().astype(np.int64)
    next_M = exam_SL[:, 1:].ravel().astype(np.int64)
    counts_V = np.bincount(train_N, minlength=vocabulary)
    unigram_M = _witten_bell(
        seen=counts_V[next_M],
        total=len(train_N),
        kinds=int(np.count_nonzero(counts_V)),
        lower=1.0 / vocabulary,
    )
    pairs_P, times_P = _count_pairs(train_N, vocabulary=vocabulary)
    heads_P = pairs_P // vocabulary
    total_V = np.bincount(heads_P, weights=times_P, minlength=vocabulary)
    kinds_V = np.bincount(heads_P, minlength=vocabulary)
    bigram_M = _witten_bell(
        seen=_look_up(previous_M * vocabulary + next_M, pairs=pairs_P, times=times_P),
        total=total_V[previous_M],
        kinds=kinds_V[previous_M],
        lower=unigram_M,
    )
    return CountingFloors(float(-np.log(unigram_M).mean()), float(-np.log(bigram_M).mean()))


def _witten_bell(*, seen: np.ndarray, total: Numbers, kinds: Numbers, lower: Numbers) -> np.ndarray:
    weight = np.asarray(total + kinds, np.float64)
    return np.where(weight > 0, (seen + kinds * lower) / np.maximum(weight, 1.0), lower)


def _count_pairs(train_N: np.ndarray, *, vocabulary: int) -> tuple[np.ndarray, np.ndarray]:
    """Different pairs as first·V + second, increasing, and how often each occurs."""
    pairs_N = train_N[:-1].astype(np.int64)
    pairs_N *= vocabulary
    pairs_N += train_N[1:]
    if vocabulary**2 > MAX_DENSE_PAIRS:
        return np.unique(pairs_N, return_counts=True)
    times = np.bincount(pairs_N, minlength=vocabulary**2)
    found = np.flatnonzero(times)
    return found, times[found]


def _look_up(wanted: np.ndarray, *, pairs: np.ndarray, times: np.ndarray) -> np.ndarray:
    if not len(pairs):
        return np.zeros(len(wanted), np.int64)
    places = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
    return np.where(pairs[places] == wanted, times[places], 0)
