"""How much runs differ by luck: the spread over seeds of each cell, pooled over a size, and what pairing takes off it.

The invariant: only finite results enter; a spread is told with its degrees of freedom.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from knockout.declare.claim import Claim
from knockout.declare.expectation import Compared, Equivalent, Interaction, Knee, Order, Ratio, Threshold, Trend
from knockout.judge.records import RunRecord, final_value, fitting, of_cell, variants_of


@dataclass(frozen=True)
class CellNoise:
    """Standard deviation of a cell's results over its seeds (n - 1 in the denominator), in the metric's unit."""

    variant: str
    sd: float
    num_seeds: int


@dataclass(frozen=True)
class PairNoise:
    """How alike two cells' runs of the same seed are.

    `correlation` is Pearson's, None with fewer than three pairs or without any spread. `sd_paired` is the standard
    deviation of the differences; `sd_unpaired` what it would be if seeds were not shared: sqrt(sd_a² + sd_b²).
    """

    variant: str
    than: str
    metric: str
    correlation: float | None
    sd_paired: float
    sd_unpaired: float
    num_pairs: int


@dataclass(frozen=True)
class SizeNoise:
    """The noise at a size. `pooled_sd` is the root of the cells' mean variance, weighted by degrees of freedom."""

    size: str
    metric: str
    cells: tuple[CellNoise, ...]
    pooled_sd: float | None
    degrees: int
    pairs: tuple[PairNoise, ...]


def noise_at(size: str, *, records: Sequence[RunRecord], metric: str, compared: Iterable[tuple[str, str, str]]) -> SizeNoise:
    """The spread of every cell, and of each compared (variant, than, metric).

    A cell that sees the future has no spread of its own on a metric that it can read off its input, and is not pooled;
    where it is compared, generation_loss stands in.
    Source of the pooling: the within-group mean square of one-way analysis of variance (Fisher, "Statistical methods for
    research workers", 1925, section 40).
    """
    cells = [cell for variant in variants_of(records) if (cell := _cell(variant, size, records, metric)) is not None]
    degrees = sum(cell.num_seeds - 1 for cell in cells)
    pooled = math.sqrt(sum((c.num_seeds - 1) * c.sd**2 for c in cells) / degrees) if degrees else None
    once = {(frozenset(asked[:2]), asked[2]): asked for asked in reversed(list(compared))}
    pairs = [pair for asked in reversed(once.values()) if (pair := _pair(asked, size, records)) is not None]
    return SizeNoise(size, metric, tuple(cells), pooled, degrees, tuple(pairs))


def compared_in(claims: Iterable[Claim], *, metric: str) -> Iterator[tuple[str, str, str]]:
    """What claims compare with what, and on which metric; `metric` where they name none."""
    for claim in claims:
        match claim.expect:
            case Compared() | Equivalent() | Ratio() | Trend() as expect:
                yield expect.variant, expect.than, expect.metric or metric
            case Interaction() as expect:
                yield expect.variant, expect.than, expect.metric or metric
                yield expect.over.variant, expect.over.than, expect.metric or metric
            case Order(along=along) as expect:
                yield from ((later, sooner, expect.metric or metric) for sooner, later in itertools.pairwise(along))
            case Knee(along=along) as expect:
                row = itertools.pairwise(along.values())
                yield from ((later, sooner, expect.metric or metric) for sooner, later in row)
            case Threshold(along=along) as expect:
                yield from ((gap.variant, gap.than, expect.metric or metric) for gap in along.values())
            case _:
                pass


def _cell(variant: str, size: str, records: Sequence[RunRecord], metric: str) -> CellNoise | None:
    runs = of_cell(records, variant=variant, size=size).values()
    if fitting(metric, runs=runs) != metric:
        return None
    values = list(_values(variant, size, records, metric).values())
    return CellNoise(variant, float(np.std(values, ddof=1)), len(values)) if len(values) > 1 else None


def _pair(asked: tuple[str, str, str], size: str, records: Sequence[RunRecord]) -> PairNoise | None:
    variant, than, metric = asked
    cells = [of_cell(records, variant=name, size=size).values() for name in (variant, than)]
    metric = fitting(metric, runs=itertools.chain(*cells))
    first, second = (_values(name, size, records, metric) for name in (variant, than))
    both = [(first[seed], second[seed]) for seed in first if seed in second]
    if len(both) < 2:
        return None
    a, b = np.array(both).T
    spread = float(np.std(a, ddof=1)), float(np.std(b, ddof=1))
    correlation = float(np.corrcoef(a, b)[0, 1]) if len(both) > 2 and min(spread) > 0.0 else None
    return PairNoise(variant, than, metric, correlation, float(np.std(a - b, ddof=1)), math.hypot(*spread), len(both))


def _values(variant: str, size: str, records: Sequence[RunRecord], metric: str) -> dict[int, float]:
    """The cell's finite results by seed."""
    found = {seed: final_value(run, metric=metric) for seed, run in of_cell(records, variant=variant, size=size).items()}
    return {seed: value for seed, value in found.items() if value is not None and math.isfinite(value)}
