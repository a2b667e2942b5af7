"""How many more seeds would settle a claim that the present ones leave open.

The invariant: an estimate, from what was observed so far as if it were the truth; past 100 more it only
says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist

from knockout.judge.statistics.binomial import Share
from knockout.judge.statistics.student import PairedT, t_quantile

MOST = 100
"""More seeds than this are not worth counting; the estimate is then None."""


def more_for_interval(seen: PairedT, *, distance: float, alpha: float) -> int | None:
    """More pairs until the expected interval of level 1 - alpha is narrower than `distance` on each side.

    `distance` is how far the observed mean is from the threshold. The smallest n with t(1 - alpha/2, n - 1)
    sd / sqrt n under it (Student 1908, solved for n).
    """
    return _first(
        lambda n: t_quantile(1.0 - alpha / 2.0, degrees=n - 1) * seen.sd / math.sqrt(n) < distance,
        start=seen.num_pairs,
    )


def more_for_ranks(share: float, *, num_pairs: int, alpha: float) -> int | None:
    """More seeds a side until the rank test is expected to reject, given the share of worse comparisons.

    Source: Noether, "Sample size determination for some common nonparametric tests", J. Am. Stat. Assoc. 82
    (1987), p. 645, at even odds: n = z² / (6 (share - 1/2)²); and never under the n at which 1 / C(2n, n)
    is small enough.
    """
    needed = NormalDist().inv_cdf(1.0 - alpha / 2.0) ** 2 / 6.0
    return _first(
        lambda n: n * (share - 0.5) ** 2 >= needed and 1.0 / math.comb(2 * n, n) <= alpha / 2.0,
        start=num_pairs,
    )


def more_for_first(steps: Sequence[PairedT], *, threshold: float, p: Mapping[int, float], alpha: float) -> int | None:
    """More seeds until some places are expected to be rejected as the first step that is over the threshold.

    `p` holds those places, counted from 0, the last one for "none is", with what rejects them now. A place is rejected once
    a step before it is shown to be over, or its own not to be, by Bonferroni over these parts (`first_true`); each place
    takes the part that needs the fewest.
    """

    def needed(place: int) -> int | None:
        before = [(step, step.mean - threshold) for step in steps[:place]]
        parts = [*before, *((step, threshold - step.mean) for step in steps[place : place + 1])]
        at = 2.0 * alpha / len(parts)
        found = [more_for_interval(step, distance=distance, alpha=at) for step, distance in parts if distance > 0.0]
        return min((n for n in found if n is not None), default=None)

    found = [needed(place) for place, rejects in p.items() if rejects > alpha]
    return None if None in found else max((n for n in found if n is not None), default=None)


def more_for_share(seen: Share, *, threshold: float, alpha: float) -> int | None:
    """More runs until the exact binomial test is expected to reject, at the share observed so far."""

    def settled(n: int) -> bool:
        expected = Share(count=round(seen.mean * n), total=n)
        return min(expected.above(threshold), expected.below(threshold)) <= alpha / 2.0

    return _first(settled, start=seen.total)


def _first(settled: Callable[[int], bool], *, start: int) -> int | None:
    """The fewest further seeds with which it is settled: 1 … MOST, or None."""
    return next((more for more in range(1, MOST + 1) if settled(start + more)), None)
