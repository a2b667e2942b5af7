"""The exact permutation test on ranks, for comparisons in which a run diverged.

The invariant: a divergence is the worst value there is, equal to any other divergence; its size never
matters, so no number has to be invented for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class RankTest:
    """Two samples of n runs each, infinity for a divergence; lower is better.

    Source: Wilcoxon, "Individual comparisons by ranking methods", Biometrics Bulletin 1 (1945), p. 80, with
    midranks for ties and the exact distribution over all C(2n, n) ways to hand the values out. A threshold
    is tested by shifting the variant's values by it (Lehmann, "Nonparametrics", 1975, section 2.5). With n
    a side no p-value is under 1 / C(2n, n): 0.05 at n = 3, 0.0143 at n = 4. Seeds are not paired here,
    which is conservative when paired runs resemble each other.
    """

    variant: tuple[float, ...]
    than: tuple[float, ...]

    def above(self, threshold: float) -> float:
        """One-sided p-value against "the variant is worse by at most `threshold`"."""
        return permutation_p([value - threshold for value in self.variant], self.than)

    def below(self, threshold: float) -> float:
        """One-sided p-value against "the variant is worse by at least `threshold`"."""
        return permutation_p(self.than, [value - threshold for value in self.variant])

    def exactly(self, threshold: float) -> bool:
        """Never: ranks do not know distances."""
        return False


@dataclass(frozen=True)
class SignedRank:
    """n per-seed contrasts, plus or minus infinity where a divergence decides; symmetric about the effect.

    Source: Wilcoxon, "Individual comparisons by ranking methods", Biometrics Bulletin 1 (1945), p. 80, paired case: ranks of
    the distances from the threshold, midranks for ties, over all 2^n ways to give them signs. A distance of zero counts
    against the conclusion. No p-value is under 1 / 2^n: 0.125 at n = 3, 0.031 at n = 5.
    """

    values: tuple[float, ...]

    def above(self, threshold: float) -> float:
        """One-sided p-value against "the effect is at most `threshold`"."""
        return sign_flip_p([value - threshold for value in self.values])

    def below(self, threshold: float) -> float:
        """One-sided p-value against "the effect is at least `threshold`"."""
        return sign_flip_p([threshold - value for value in self.values])

    def exactly(self, threshold: float) -> bool:
        """Never: ranks do not know distances."""
        return False


def sign_flip_p(distances: Sequence[float]) -> float:
    """The share of all assignments of signs whose rank sum on the positive side is at least the one observed.

    Raises:
        ValueError: a distance is NaN (two divergences that cancel have no difference), or there is none.
    """
    values = np.asarray(distances, dtype=np.float64)
    if np.isnan(values).any() or not values.size:
        raise ValueError(f"sign_flip_p needs distances and no NaN, got {list(distances)}")
    doubled = _doubled_midranks(np.abs(values))
    counts = np.zeros(int(doubled.sum()) + 1)
    counts[0] = 1.0
    for rank in doubled:
        counts[rank:] += counts[: len(counts) - rank].copy()
    observed = int(doubled[values > 0.0].sum())
    return float(counts[observed:].sum() / 2.0 ** len(values))


def permutation_p(larger: Sequence[float], smaller: Sequence[float]) -> float:
    """The share of all assignments whose rank sum for `larger` is at least the one observed.

    Raises:
        ValueError: a value is NaN, or a side is empty.
    """
    values = np.asarray([*larger, *smaller], dtype=np.float64)
    if np.isnan(values).any() or not len(larger) or not len(smaller):
        raise ValueError(f"permutation_p needs values on both sides and no NaN, got {list(larger)} and {list(smaller)}")
    doubled = _doubled_midranks(values)
    counts = _rank_sum_counts(doubled, num_chosen=len(larger))
    observed = int(doubled[: len(larger)].sum())
    return float(counts[observed:].sum() / comb(len(values), len(larger)))


def _doubled_midranks(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Twice each value's rank from 1; equal values share the mean of theirs, so that twice it is whole."""
    _, place, ties = np.unique(values, return_inverse=True, return_counts=True)
    return (2 * np.cumsum(ties) - ties + 1)[place]


def _rank_sum_counts(ranks: NDArray[np.int64], *, num_chosen: int) -> NDArray[np.float64]:
    """How many subsets of `num_chosen` ranks have each sum, exactly: one rank added at a time."""
    total = int(ranks.sum())
    counts = np.zeros((num_chosen + 1, total + 1))
    counts[0, 0] = 1.0
    for rank in ranks:
        counts[1:, rank:] += counts[:-1, : total + 1 - rank].copy()
    return counts[num_chosen]


def share_worse(variant: Sequence[float], than: Sequence[float]) -> float:
    """How often a run of the variant is worse than one of the other, ties as half (Mann-Whitney U / n²)."""
    first, second = np.asarray(variant)[:, None], np.asarray(than)[None, :]
    return float(((first > second) + 0.5 * (first == second)).mean())
