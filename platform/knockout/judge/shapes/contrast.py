"""A contrast: weights over cells, and with them one number for each seed.

The invariant: what a claim is about is a contrast's expectation over seeds. Everything that seeds share cancels in it, so
seeds stay paired.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from knockout.judge.shapes.observed import Cell, Observed
from knockout.judge.statistics.ranks import RankTest, SignedRank
from knockout.judge.statistics.student import PairedT, paired_t

Contrast = Mapping[Cell, float]
Tested = PairedT | RankTest | SignedRank


def difference(cell: Cell, *, than: Cell) -> Contrast:
    """A cell minus another."""
    return {cell: 1.0, than: -1.0}


def excess(gap: Contrast, *, over: Contrast) -> Contrast:
    """A contrast minus another: a difference of differences."""
    weights = {cell: gap.get(cell, 0.0) - over.get(cell, 0.0) for cell in {**gap, **over}}
    return {cell: weight for cell, weight in weights.items() if weight != 0.0}


def slope(gaps: Sequence[Contrast], *, at: Sequence[float]) -> Contrast:
    """The least-squares slope of gaps over the places where they stand.

    Source: the normal equations of a line, slope = sum (x - mean) y / sum (x - mean)².
    """
    mean = sum(at) / len(at)
    squares = sum((x - mean) ** 2 for x in at)
    weights: dict[Cell, float] = {}
    for gap, x in zip(gaps, at, strict=True):
        for cell, weight in gap.items():
            weights[cell] = weights.get(cell, 0.0) + weight * (x - mean) / squares
    return weights


def per_seed(contrast: Contrast, *, observed: Observed) -> tuple[float, ...]:
    """The contrast of every seed; NaN where divergences cancel."""
    weighted = [(weight, observed.values[cell]) for cell, weight in contrast.items() if weight != 0.0]
    return tuple(
        math.fsum(parts) if all(map(math.isfinite, parts)) else sum(parts)
        for parts in ([weight * values[seed] for weight, values in weighted] for seed in range(observed.num_seeds))
    )


def compared(cell: Cell, *, than: Cell, observed: Observed) -> PairedT | RankTest:
    """The test of the difference between two cells: Student's t, or with a divergence the rank test of two samples, in
    which a divergence on each side is a tie.
    """
    first, second = observed.values[cell], observed.values[than]
    if all(map(math.isfinite, (*first, *second))):
        return paired_t(per_seed(difference(cell, than=than), observed=observed))
    return RankTest(variant=first, than=second)


def evidence(contrast: Contrast, *, observed: Observed) -> Tested | None:
    """The test of a contrast's expectation: as of two cells, or with a divergence among several by signed ranks.

    None where divergences cancel in a seed, so that it has no value there.
    """
    used = {cell: weight for cell, weight in contrast.items() if weight != 0.0}
    if sorted(used.values()) == [-1.0, 1.0]:
        return compared(max(used, key=used.__getitem__), than=min(used, key=used.__getitem__), observed=observed)
    values = per_seed(used, observed=observed)
    if any(math.isnan(value) for value in values):
        return None
    return paired_t(values) if all(map(math.isfinite, values)) else SignedRank(values)
