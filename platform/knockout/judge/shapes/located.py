"""Claims of a knee and of a threshold: at which x something changes.

The invariant: only the x that were tried can be told apart; what lies beyond the last is one place, and is called so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from knockout.declare.expectation import Knee, Threshold
from knockout.declare.expected import inside
from knockout.judge import sentences
from knockout.judge.shapes.contrast import compared
from knockout.judge.shapes.measured import Case, Measured
from knockout.judge.statistics.evidence import Sides, over
from knockout.judge.statistics.first import First, first_true
from knockout.judge.verdict import ROW, Verdict


def find_knee(expect: Knee, *, case: Case) -> Measured | Verdict:
    """The evidence on where a doubling of x first gains less than a margin."""
    what = f"the knee of {case.metric} along {ROW.join(expect.along.values())}"
    if not case.observed.finite:
        return case.undecidable(sentences.unmeasured(case.observed, what=what))
    margin = case.decide.margin if expect.margin is None else expect.margin
    rises = [(later, sooner) for sooner, later in pairwise(expect.along.values())]
    found = first_true(_sides(rises, threshold=-margin, case=case), places=[float(x) for x in expect.along])
    last = found.places[-1]
    names = {place: f"{place:g}{' or beyond' if place == last else ''}" for place in found.places}
    gain = sentences.amount(margin, metric=case.metric)
    said = f"{what}, the smallest x at which doubling it gains less than {gain}, is {names[found.estimate]}"
    return _measured(found, said=said, names=names, within=expect.within, threshold=margin, case=case)


def find_threshold(expect: Threshold, *, case: Case) -> Measured | Verdict:
    """The evidence on where one variant is first worse than another by more than the claim says."""
    gaps = [(gap.variant, gap.than) for gap in expect.along.values()]
    places = [*map(float, expect.along), math.inf]
    found = first_true(_sides(gaps, threshold=expect.by, case=case), places=places)
    names = {place: f"{place:g}" if math.isfinite(place) else f"beyond {places[-2]:g}" for place in places}
    worse = f"worse by more than {sentences.amount(expect.by, metric=case.metric)} on {case.metric}"
    pairs = {float(x): f"{gap.variant} against {gap.than}" for x, gap in expect.along.items()}
    pair = f" ({pairs[found.estimate]})" if found.estimate in pairs else ""
    said = f"the smallest x at which a variant is {worse} is {names[found.estimate]}{pair}{_diverged(case)}"
    return _measured(found, said=said, names=names, within=expect.within, threshold=expect.by, case=case)


def _sides(pairs: Sequence[tuple[str, str]], *, threshold: float, case: Case) -> list[Sides]:
    """Of each two variants, the evidence on the first being over the second by more than the threshold."""
    cells = [((variant, case.size), (than, case.size)) for variant, than in pairs]
    return [over(compared(cell, than=than, observed=case.observed), threshold=threshold) for cell, than in cells]


def _measured(
    found: First,
    *,
    said: str,
    names: dict[float, str],
    within: Sequence[float | None],
    threshold: float,
    case: Case,
) -> Measured:
    members = found.members(alpha=case.decide.alpha)
    members_in_words = ", ".join(names[place] for place in members)
    spread = f"{100 * case.level:g} % confidence set {{{members_in_words}}}"
    return Measured(
        case.verdict(
            effect=found.estimate if math.isfinite(found.estimate) else None,
            interval=case.interval((members[0], members[-1])),
            threshold=threshold,
        ),
        found.sides(inside=[place for place in found.places if inside(within, x=place)]),
        found=f"{said}, {spread}, {sentences.seeds(case.observed.num_seeds)}",
        asked=_asked(within),
        more=None,
        left_out=case.observed.missing,
    )


def _asked(within: Sequence[float | None]) -> str:
    low, high = within
    if low is None or high is None:
        end = f"{high:g} or less" if high is not None else f"{low:g} or more"
        return f"the claim asked for {end}"
    return f"the claim asked for {low:g}" if low == high else f"the claim asked for {low:g} to {high:g}"


def _diverged(case: Case) -> str:
    """What diverged, which counts as the worst."""
    seen = [f"{name} in {n}" for name, size in case.observed.values if (n := case.observed.diverged((name, size)))]
    return f"; diverged, which counts as the worst: {', '.join(seen)}" if seen else ""
