"""Claims about the ratio of two variants' metric.

The invariant: both are over zero in every seed, or nothing is said.
"""

from __future__ import annotations

import math

from knockout.declare.expectation import Ratio
from knockout.judge import sentences
from knockout.judge.shapes.bounds import bounded, held_back
from knockout.judge.shapes.contrast import difference
from knockout.judge.shapes.measured import Case, Measured
from knockout.judge.shapes.single import Range
from knockout.judge.statistics.fieller import Fieller
from knockout.judge.statistics.planning import more_for_interval
from knockout.judge.verdict import Verdict


def divide(expect: Ratio, *, case: Case) -> Measured | Verdict:
    """The evidence on a ratio lying between two ends."""
    cell, than = (expect.variant, case.size), (expect.than, case.size)
    upper, lower = case.observed.values[cell], case.observed.values[than]
    ratio = f"the ratio of {expect.variant} to {expect.than} on {case.metric}"
    if not case.observed.finite:
        return case.undecidable(sentences.unmeasured(case.observed, what=ratio))
    if min(*upper, *lower) <= 0.0:
        return case.undecidable(f"{ratio} means nothing, for a value is not over zero")
    low, high = expect.between
    wanted = Range(-math.inf if low is None else low, math.inf if high is None else high)
    seen = Fieller(upper, lower)
    ends = seen.interval(level=case.level)
    interval = None if ends is None else case.interval(ends)
    said = (
        f"unbounded, since the mean of {expect.than} is not clearly over zero"
        if ends is None
        else "{} to {}".format(*map(sentences.number, ends))
    )
    found = (
        f"{ratio} is {sentences.number(seen.ratio)}, {100 * case.level:g} % interval {said} (Fieller), "
        f"{sentences.seeds(case.observed.num_seeds)}"
    )
    verdict = case.verdict(effect=seen.ratio, interval=interval, threshold=None)
    shown = wanted.sides(bounded(seen, contrast=difference(cell, than=than), case=case))
    return Measured(
        verdict,
        shown,
        found=found,
        asked=_asked(wanted),
        more=lambda alpha: _more(seen, wanted=wanted, alpha=alpha),
        left_out=case.observed.missing,
        held_back=held_back(case, measured=wanted.sides(seen), shown=shown),
    )


def _more(seen: Fieller, *, wanted: Range, alpha: float) -> int | None:
    """Seeds until the ratio is told from the nearest end, as a difference from it."""
    nearest = min((end for end in (wanted.low, wanted.high) if math.isfinite(end)), key=lambda end: abs(seen.ratio - end))
    apart = seen.against(nearest)
    return more_for_interval(apart, distance=abs(apart.mean), alpha=alpha)


def _asked(wanted: Range) -> str:
    low, high = sentences.number(wanted.low), sentences.number(wanted.high)
    if math.isinf(wanted.high):
        return f"the claim asked for more than {low}"
    return f"the claim asked for less than {high}" if math.isinf(wanted.low) else f"the claim asked for {low} to {high}"
