"""Claims of a knee and of a threshold: at which x something changes.

The invariant: only the x that were tried can be told apart; what lies beyond the last is one place, and is called so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from knockout.declare.expectation import Knee, Threshold
from knockout.declare.expected import inside
from knockout.judge import sentences
from knockout.judge.shapes.bounds import bounded, held_back
from knockout.judge.shapes.contrast import compared, difference
from knockout.judge.shapes.measured import Case, Measured, More
from knockout.judge.statistics.evidence import over
from knockout.judge.statistics.first import First, first_true
from knockout.judge.statistics.planning import more_for_first
from knockout.judge.statistics.ranks import RankTest
from knockout.judge.statistics.student import PairedT
from knockout.judge.verdict import ROW, Verdict


def find_knee(expect: Knee, *, case: Case) -> Measured | Verdict:
    """The evidence on where a doubling of x first gains less than a margin."""
    what = f"the knee of {case.metric} along {ROW.join(expect.along.values())}"
    if not case.observed.finite:
        return case.undecidable(sentences.unmeasured(case.observed, what=what))
    margin = case.decide.margin if expect.margin is None else expect.margin
    rises = [(later, sooner) for sooner, later in pairwise(expect.along.values())]
    tests = _tests(rises, case=case)
    at = _Axis([float(x) for x in expect.along], rises, threshold=-margin)
    found = at.shown(tests, case=case)
    last = found.places[-1]
    names = {place: f"{place:g}{' or beyond' if place == last else ''}" for place in found.places}
    gain = sentences.amount(margin, metric=case.metric)
    said = f"{what}, the smallest x at which doubling it gains less than {gain}, is {names[found.estimate]}"
    more = _more(found, tests=tests, threshold=-margin, within=expect.within)
    held = at.held_back(tests, within=expect.within, case=case)
    measured = _measured(found, said=said, names=names, within=expect.within, threshold=margin, more=more, case=case)
    return replace(measured, verdict=replace(measured.verdict, last=last), held_back=held)


def find_threshold(expect: Threshold, *, case: Case) -> Measured | Verdict:
    """The evidence on where one variant is first worse than another by more than the claim says."""
    gaps = [(gap.variant, gap.than) for gap in expect.along.values()]
    places = [*map(float, expect.along), math.inf]
    tests = _tests(gaps, case=case)
    at = _Axis(places, gaps, threshold=expect.by)
    found = at.shown(tests, case=case)
    names = {place: f"{place:g}" if math.isfinite(place) else f"beyond {places[-2]:g}" for place in places}
    worse = f"worse by more than {sentences.amount(expect.by, metric=case.metric)} on {case.metric}"
    pairs = {float(x): f"{gap.variant} against {gap.than}" for x, gap in expect.along.items()}
    pair = f" ({pairs[found.estimate]})" if found.estimate in pairs else ""
    said = f"the smallest x at which a variant is {worse} is {names[found.estimate]}{pair}{_diverged(case)}"
    more = _more(found, tests=tests, threshold=expect.by, within=expect.within)
    held = at.held_back(tests, within=expect.within, case=case)
    measured = _measured(found, said=said, names=names, within=expect.within, threshold=expect.by, more=more, case=case)
    return replace(measured, held_back=held)


@dataclass(frozen=True)
class _Axis:
    """The places along which pairs of variants are compared, each with the same threshold."""

    places: Sequence[float]
    pairs: Sequence[tuple[str, str]]
    threshold: float

    def measured(self, tests: Sequence[PairedT | RankTest]) -> First:
        """The first place, every loss taken at its word."""
        return first_true([over(seen, threshold=self.threshold) for seen in tests], places=self.places)

    def shown(self, tests: Sequence[PairedT | RankTest], *, case: Case) -> First:
        """The same place, with what rejects the others where losses at the floor are bounds."""
        contrasts = [difference((variant, case.size), than=(than, case.size)) for variant, than in self.pairs]
        bounds = [bounded(seen, contrast=one, case=case) for seen, one in zip(tests, contrasts, strict=True)]
        found = first_true([over(seen, threshold=self.threshold) for seen in bounds], places=self.places)
        return replace(found, estimate=self.measured(tests).estimate)

    def held_back(self, tests: Sequence[PairedT | RankTest], *, within: Sequence[float | None], case: Case) -> str | None:
        """Why cells at the floor cannot show what was measured; None where they can."""
        expected = [place for place in self.places if inside(within, x=place)]
        measured, shown = self.measured(tests), self.shown(tests, case=case)
        return held_back(case, measured=measured.sides(inside=expected), shown=shown.sides(inside=expected))


def _tests(pairs: Sequence[tuple[str, str]], *, case: Case) -> list[PairedT | RankTest]:
    """Of each two variants, the test of the first minus the second."""
    cells = [((variant, case.size), (than, case.size)) for variant, than in pairs]
    return [compared(cell, than=than, observed=case.observed) for cell, than in cells]


def _more(
    found: First, *, tests: Sequence[PairedT | RankTest], threshold: float, within: Sequence[float | None]
) -> More | None:
    """Seeds until every place on the other side of the claim than the best guess is rejected; None with a divergence."""
    steps = [seen for seen in tests if isinstance(seen, PairedT)]
    if len(steps) < len(tests):
        return None
    guess = inside(within, x=found.estimate)
    places = zip(found.places, found.p, strict=True)
    others = {k: p for k, (place, p) in enumerate(places) if inside(within, x=place) != guess}
    return lambda alpha: more_for_first(steps, threshold=threshold, p=others, alpha=alpha)


def _measured(
    found: First,
    *,
    said: str,
    names: dict[float, str],
    within: Sequence[float | None],
    threshold: float,
    more: More | None,
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
        more=more,
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
