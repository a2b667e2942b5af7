"""The best of a search, whether it lies at an end of its range, and the trial that goes beyond that end.

The invariant: pure functions of the trials so far, so that a search that is walked again goes beyond the same ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from knockout.declare.tune import Range, Tune
from knockout.search.trial import Trial

EDGE = 0.02
"""A best value within this share of its range's ends is on the edge."""


def best(trials: Sequence[Trial]) -> Trial | None:
    """The done trial with the smallest loss, the first of equals; None when none is done. A pruned one is never best."""
    finished = [trial for trial in trials if trial.state == "done"]
    return min(finished, key=lambda trial: (trial.loss, trial.number), default=None)


def reached(tune: Tune, *, trials: Sequence[Trial]) -> dict[str, Range]:
    """The ranges, as wide as the trials that went beyond them."""
    return {path: _wide(range_, values=[trial.values[path] for trial in trials]) for path, range_ in tune.ranges.items()}


def on_edge(values: Mapping[str, float], *, ranges: Mapping[str, Range]) -> dict[str, str]:
    """The settings whose value is at an end of its range, with which end (low, high)."""
    edges = {path: _edge(value, range_=ranges[path]) for path, value in values.items()}
    return {path: edge for path, edge in edges.items() if edge is not None}


def extension(
    trials: Sequence[Trial], *, tune: Tune, accepts: Callable[[Mapping[str, float]], bool]
) -> tuple[str, dict[str, float]] | None:
    """The setting to go beyond the range of, and the point to try: the best one a step further; None when it suffices.

    A step is the range over (trials - 1), in the searched scale. `accepts` says whether a point is legal.
    """
    chosen = best(trials)
    if chosen is None:
        return None
    ranges = reached(tune, trials=trials)
    for path, end in on_edge(chosen.values, ranges=ranges).items():
        spent = sum(trial.extends == path for trial in trials)
        point = {**chosen.values, path: _beyond(ranges[path], end=end, step=_step(tune, path))}
        if spent < tune.extend and accepts(point):
            return path, point
    return None


def _edge(value: float, *, range_: Range) -> str | None:
    low, high, here = (_scaled(x, range_) for x in (range_.low, range_.high, value))
    place = (here - low) / (high - low)
    return "low" if place <= EDGE else "high" if place >= 1.0 - EDGE else None


def _step(tune: Tune, path: str) -> float:
    range_ = tune.ranges[path]
    return (_scaled(range_.high, range_) - _scaled(range_.low, range_)) / (tune.trials - 1)


def _beyond(range_: Range, *, end: str, step: float) -> float:
    at = _scaled(range_.low, range_) - step if end == "low" else _scaled(range_.high, range_) + step
    return math.exp(at) if range_.log else at


def _wide(range_: Range, *, values: Sequence[float]) -> Range:
    return Range(low=min(range_.low, *values), high=max(range_.high, *values), log=range_.log) if values else range_


def _scaled(value: float, range_: Range) -> float:
    return math.log(value) if range_.log else value
