"""How many more seeds would settle a claim that the present ones leave open.

The invariant: an estimate, from what was observed so far as if it were the truth; past 100 more it only
says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.special import ndtri

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
    needed = ndtri(1.0 - alpha / 2.0) ** 2 / 6.0
    return _first(
        lambda n: n * (share - 0.5) ** 2 >= needed and 1.0 / math.comb(2 * n, n) <= alpha / 2.0,
        start=num_pairs,
    )


def more_for_share(seen: Share, *, threshold: float, alpha: float) -> int | None:
    """More runs until the exact binomial test is expected to reject, at the share observed so far."""

    def settled(n: int) -> bool:
        expected = Share(count=round(seen.mean * n), total=n)
        return min(expected.above(threshold), expected.below(threshold)) <= alpha / 2.0

    return _first(settled, start=seen.total)


def _first(settled: Callable[[int], bool], *, start: int) -> int | None:
    """The fewest further seeds with which it is settled: 1 … MOST, or None."""
    return next((more for more in range(1, MOST + 1) if settled(start + more)), None)
