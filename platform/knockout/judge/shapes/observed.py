"""The values that a claim is judged on: several cells' final values, seed by seed.

The invariant: only seeds for which every cell has a result are kept, in one order for all cells; whatever is left out is
named.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from knockout.judge.floors import Cell
from knockout.judge.records import RESULTS, RunRecord, final_value, of_cell

__all__ = ["Cell", "Observed", "missing", "observe"]


@dataclass(frozen=True)
class Observed:
    """Final values of cells over the seeds that all of them have; infinity for a divergence."""

    metric: str
    values: Mapping[Cell, tuple[float, ...]]
    num_seeds: int
    missing: str | None
    cost_seconds: float

    @property
    def finite(self) -> bool:
        """Whether no run diverged."""
        return all(math.isfinite(value) for cell in self.values.values() for value in cell)

    def diverged(self, cell: Cell) -> int:
        """In how many seeds a cell diverged."""
        return sum(math.isinf(value) for value in self.values[cell])


def observe(cells: Iterable[Cell], *, metric: str, records: Sequence[RunRecord]) -> Observed:
    """The values of a metric for these cells, paired by seed."""
    runs = {cell: of_cell(records, variant=cell[0], size=cell[1]) for cell in dict.fromkeys(cells)}
    shared = [seed for seed in next(iter(runs.values()), {}) if all(seed in of for of in runs.values())]
    usable = [seed for seed in shared if not any(_gap(of[seed], metric=metric) for of in runs.values())]
    return Observed(
        metric=metric,
        values={cell: tuple(_value(of[seed], metric=metric) for seed in usable) for cell, of in runs.items()},
        num_seeds=len(usable),
        missing=missing(runs, metric=metric),
        cost_seconds=sum(of[seed].seconds for of in runs.values() for seed in usable),
    )


def missing(runs: Mapping[Cell, Mapping[int, RunRecord]], *, metric: str | None) -> str | None:
    """Everything that keeps a seed from being compared, in words; without a metric any result will do."""
    seeds = sorted({seed for of in runs.values() for seed in of})
    sizes = {size for _, size in runs}
    gaps: list[str] = []
    for (variant, size), of in runs.items():
        name = variant if len(sizes) == 1 else f"{variant} at {size}"
        found = (_gap(of[s], metric=metric) if s in of else f"{name} has no run at seed {s}" for s in seeds)
        gaps += [f"no run of {name}"] if not of else [gap for gap in found if gap]
    return f"left out: {', '.join(gaps)}" if gaps else None


def _gap(record: RunRecord, *, metric: str | None) -> str | None:
    """Why a run cannot be compared, or None."""
    if record.state not in RESULTS:
        return f"{record.label} ({record.state}{f': {record.reason}' if record.reason else ''})"
    absent = metric is not None and final_value(record, metric=metric) is None
    return f"{record.label} has no {metric}" if absent else None


def _value(run: RunRecord, *, metric: str) -> float:
    value = final_value(run, metric=metric)
    if value is None:
        raise ValueError(f"{run.label} has no {metric}: it cannot be paired")
    return value
