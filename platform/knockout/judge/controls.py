"""Comparisons whose answer is known: the baseline against itself, and the baseline on text without any order.

The invariant: a control never changes a verdict. One that fails says, above all verdicts of its size, that something other
than the variants makes a difference there, or that the exam can be passed without learning.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from knockout.judge.records import BASELINE, RESULTS, RunRecord, final_value, fitting, of_cell
from knockout.judge.sentences import amount, count, number
from knockout.judge.statistics.ranks import RankTest
from knockout.judge.statistics.student import paired_t
from knockout.judge.verdict import Interval

ROUNDING = 0.001
"""Nats by which a loss over many tokens may lie under a bound that holds for them exactly."""


@dataclass(frozen=True)
class ControlResult:
    """What a control came to at a size.

    `effect` is the later half minus the earlier one (A-A), or the loss minus the unigram floor (shuffled); None where a
    divergence leaves no number. `passed` is None where there is nothing to go by.
    """

    control: Literal["A-A", "shuffled"]
    size: str
    passed: bool | None
    metric: str
    effect: float | None
    interval: Interval | None
    p: float | None
    num_seeds: int
    sentence: str


def aa_control(
    size: str, *, judged: Sequence[RunRecord], again: Sequence[RunRecord], metric: str, alpha: float
) -> ControlResult:
    """The judged baseline runs against as many with fresh seeds; a p-value of at most alpha is a false alarm.

    Runs are paired in the order of their seeds, so every pair differs in its seed as no pair of a verdict does: the spread
    is that of unpaired runs. Where nothing is wrong it fails in a share alpha of studies.
    """
    metric = fitting(metric, runs=[run for run in judged if run.variant == BASELINE and run.size == size])
    first = [v for run in of_cell(judged, variant=BASELINE, size=size).values() if (v := _value(run, metric)) is not None]
    second = [v for run in again if run.size == size and (v := _value(run, metric)) is not None]
    pairs = list(zip(first, second, strict=False))
    if len(pairs) < 2:
        said = f"at {size} the baseline could not be held against itself: {count(len(pairs), 'pair')} of runs"
        return ControlResult("A-A", size, None, metric, None, None, None, len(pairs), said)
    if not all(math.isfinite(value) for pair in pairs for value in pair):
        evidence = RankTest(variant=tuple(b for _, b in pairs), than=tuple(a for a, _ in pairs))
        effect = interval = None
        shown = "compared by rank, since a run diverged"
    else:
        evidence = paired_t([b - a for a, b in pairs])
        effect, interval = evidence.mean, Interval(*evidence.interval(level=1.0 - alpha), 1.0 - alpha)
        shown = f"{_signed(effect)}, {100 * interval.level:g} % interval {_signed(interval.low)} to {_signed(interval.high)}"
    p = min(1.0, 2.0 * min(evidence.above(0.0), evidence.below(0.0)))
    passed = p > alpha
    says = "differs no more than chance allows" if passed else "differs more than chance allows"
    said = f"at {size} the baseline {says} from itself with {len(pairs)} fresh seeds on {metric} ({shown}, p = {number(p)})"
    said += "" if passed else f"; chance alone gives a difference as large in {100 * p:.2g} % of sound studies"
    return ControlResult("A-A", size, passed, metric, effect, interval, p, len(pairs), said)


def shuffled_control(size: str, *, runs: Sequence[RunRecord], floors: Mapping[str, float]) -> ControlResult:
    """The baseline on shuffled tokens: a loss under the unigram cross-entropy of the same tokens cannot be."""
    metric = fitting("val_loss", runs=[run for run in runs if run.size == size])
    losses = [v for run in runs if run.size == size and (v := _value(run, metric)) is not None]
    floor = floors.get("unigram")
    if not losses or floor is None or not math.isfinite(losses[0]):
        why = "it diverged" if losses and floor is not None else "no run" if floor is not None else "no unigram floor"
        said = f"at {size} the control on shuffled tokens has no result: {why}"
        return ControlResult("shuffled", size, None, metric, None, None, None, len(losses), said)
    effect = losses[0] - floor
    passed = effect > -ROUNDING
    against = f"{_against(effect)} the unigram floor of {number(floor)} on {metric}"
    said = f"at {size} the baseline on shuffled tokens is {against}"
    said += "" if passed else ": what it is asked leaks into what it sees"
    return ControlResult("shuffled", size, passed, metric, effect, None, None, 1, said)


def _value(run: RunRecord, metric: str) -> float | None:
    """The value that a run enters a control with; None where it has no result."""
    if run.state not in RESULTS:
        return None
    return final_value(run, metric=metric)


def _against(effect: float) -> str:
    """Where a loss lies against a floor that it cannot be under, but for rounding."""
    if abs(effect) <= ROUNDING:
        return "at"
    return f"{amount(abs(effect), metric='val_loss')} {'over' if effect > 0.0 else 'under'}"


def _signed(value: float) -> str:
    return f"{'−' if value < 0 else '+'}{number(abs(value))}"
