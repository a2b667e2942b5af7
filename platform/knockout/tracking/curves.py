"""Which rows of a run's metrics are sent to MLflow.

The invariant: a (metric, step) is sent at most once, in the order of steps, whatever rows come again. What
was sent last of each metric (its mark) is all that has to be known, and MLflow itself remembers it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

MAX_POINTS = 1_000
EVALUATION_NAMES = frozenset({"bits_per_byte", "generation_loss"})
EVALUATION_PREFIXES = ("val_", "val/", "eval_", "eval/", "test_", "test/", "final/", "parameters/")


class Row(NamedTuple):
    """One value of one metric. `time_seconds` counts from the run's start, or from the epoch."""

    metric: str
    step: int
    value: float
    time_seconds: float


@dataclass(frozen=True)
class Selection:
    """What to do with rows."""

    send: tuple[Row, ...]
    """By step; every value is finite."""
    held: Mapping[str, Row]
    """The newest row of a metric that is not sent now, for the end of the run."""
    non_finite: Row | None
    """The first row whose value is NaN or infinite."""


def is_evaluation(metric: str) -> bool:
    """Whether every point of the metric is kept. Everything else is a training curve."""
    return metric in EVALUATION_NAMES or metric.startswith(EVALUATION_PREFIXES)


def select(rows: Iterable[Row], *, marks: Mapping[str, int], planned_steps: int | None) -> Selection:
    """Choose the rows to send.

    Of a training curve the first row of each thousandth of `planned_steps` is sent, so that which steps are shown does not
    depend on where a run was cut off; the last is held until the run ends. Without `planned_steps` the rows are taken as
    all that there is, and the last is sent as well.
    """
    ordered = sorted(rows, key=lambda row: (row.step, row.metric))
    last_step = max((row.step for row in ordered), default=0)
    stride = math.ceil(max(planned_steps or last_step, 1) / MAX_POINTS)
    seen, sent, held = dict(marks), list[Row](), dict[str, Row]()

    def part(step: int) -> int:
        return (step - 1) // stride

    for row in ordered:
        mark = seen.get(row.metric)
        if not math.isfinite(row.value) or (mark is not None and row.step <= mark):
            continue
        if mark is None or is_evaluation(row.metric) or part(row.step) > part(mark):
            sent.append(row)
            seen[row.metric] = row.step
            held.pop(row.metric, None)
        else:
            held[row.metric] = row
    if planned_steps is None:
        sent, held = sorted([*sent, *held.values()], key=lambda row: (row.step, row.metric)), {}
    non_finite = next((row for row in ordered if not math.isfinite(row.value)), None)
    return Selection(tuple(sent), held, non_finite)


def timestamp(row: Row, *, start_milliseconds: int) -> int:
    """Milliseconds since the epoch; the same for the same row, whenever it is sent.

    A time of 1e9 s or more (2001) is a date, less is a time since the run's start.
    """
    milliseconds = round(row.time_seconds * 1000)
    return milliseconds if row.time_seconds >= 1e9 else start_milliseconds + milliseconds
