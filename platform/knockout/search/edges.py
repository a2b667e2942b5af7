"""The best of a search, whether it lies at an end of its range, and the trial that goes beyond that end.

The invariant: pure functions of the trials so far, so that a search that is walked again goes beyond the same ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from knockout.declare.tune import Range, Tune
from knockout.search.trial import Trial

AsRun = Callable[[Mapping[str, float]], Mapping[str, float]]
"""What a run makes of searched values: those of whole numbers are rounded."""

EDGE = 0.02
"""A best value within this share of its range's ends is on the edge."""


def best(trials: Sequence[Trial]) -> Trial | None:
    """The done trial with the smallest loss, the first of equals; None when none is done. A pruned one is never best."""
    finished = [trial for trial in trials if trial.state == "done"]
    return min(finished, key=lambda trial: (trial.loss, trial.number), default=None)


def reached(tune: Tune, *, trials: Sequence[Trial]) -> dict[str, Range]:
    """The ranges, as wide as the trials that went beyond them."""
    return {path: _wide(range_, values=[trial.values[path] for trial in trials]) for path, range_ in tune.ranges.items()}


def unrounded(values: Mapping[str, float]) -> Mapping[str, float]:
    """Where no setting is a whole number."""
    return values


def on_edge(values: Mapping[str, float], *, ranges: Mapping[str, Range], as_run: AsRun = unrounded) -> dict[str, str]:
    """The settings whose value is at an end of its range, with which end (low, high).

    A whole number is so too where it is what a run makes of the end: 1.4 is 1, the low end of 1 to 4.
    """
    here = as_run(values)
    lows = as_run({path: ranges[path].low for path in values})
    highs = as_run({path: ranges[path].high for path in values})

    def edge(path: str) -> str | None:
        if here[path] in (lows[path], highs[path]):
            return "low" if here[path] == lows[path] else "high"
        return _edge(values[path], range_=ranges[path])

    return {path: found for path in values if (found := edge(path)) is not None}


def extension(
    trials: Sequence[Trial], *, tune: Tune, accepts: Callable[[Mapping[str, float]], bool], as_run: AsRun = unrounded
) -> tuple[str, dict[str, float]] | None:
    """The setting to go beyond the range of, and the point to try: the best one a step further; None when it suffices.

    A step is the range over (trials - 1), in the searched scale. `accepts` says whether a point is legal; one that rounds
    to a point that was tried is not tried again.
    """
    chosen = best(trials)
    if chosen is None:
        return None
    ranges, tried = reached(tune, trials=trials), [as_run(trial.values) for trial in trials]
    for path, end in on_edge(chosen.values, ranges=ranges, as_run=as_run).items():
        spent = sum(trial.extends == path for trial in trials)
        point = {**chosen.values, path: _beyond(ranges[path], end=end, step=_step(tune, path))}
        if spent < tune.extend and accepts(point) and as_run(point) not in tried:
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
