"""Claims of order: a metric falls or rises along a row of variants, at every step.

The invariant: it is supported only where every step is, and what is shown is the smallest step. Which step is the smallest
is not known beforehand, so its interval is joint over all of them, the one that the two tests invert: supported is what lies
under the interval, and refuted what lies over it.
"""

from __future__ import annotations

from dataclasses import dataclass

from knockout.declare.expectation import Order
from knockout.judge import sentences
from knockout.judge.shapes.bounds import bounded, held_back
from knockout.judge.shapes.contrast import compared, difference
from knockout.judge.shapes.measured import Case, Measured, More
from knockout.judge.statistics.evidence import Sides, all_of, over
from knockout.judge.statistics.planning import more_for_interval
from knockout.judge.statistics.ranks import RankTest
from knockout.judge.statistics.student import PairedT
from knockout.judge.verdict import ROW, Interval, Verdict


@dataclass(frozen=True)
class _Step:
    """From one variant to the next; the effect is in the claimed direction."""

    start: str
    end: str
    seen: PairedT | RankTest
    sides: Sides
    shown: Sides
    """With losses at the floor taken as bounds."""

    @property
    def strength(self) -> tuple[bool, float]:
        """What sorts steps from the weakest on: by their means, and steps with a divergence by rank."""
        if isinstance(self.seen, PairedT):
            return False, self.seen.mean
        return self.sides.supports, 0.0


def rank_in_order(expect: Order, *, case: Case) -> Measured | Verdict:
    """The evidence on every step being larger than the claim says, in its direction."""
    rows = zip(expect.along, expect.along[1:], strict=False)
    steps = [_step(start, end, expect=expect, case=case) for start, end in rows]
    weakest = min(steps, key=lambda step: step.strength)
    if isinstance(weakest.seen, PairedT):
        verdict = case.verdict(effect=weakest.seen.mean, interval=_of_smallest(steps, case=case), threshold=expect.by)
    else:
        verdict = case.verdict(effect=None, interval=None, threshold=expect.by)
    shown = all_of([step.shown for step in steps])
    return Measured(
        verdict,
        shown,
        found=_found(weakest, interval=verdict.interval, expect=expect, case=case),
        asked=_asked(expect, metric=case.metric),
        more=_more(steps, by=expect.by),
        left_out=case.observed.missing,
        held_back=held_back(case, measured=all_of([step.sides for step in steps]), shown=shown),
    )


def _step(start: str, end: str, *, expect: Order, case: Case) -> _Step:
    first, second = (start, end) if expect.direction == "falls" else (end, start)
    cell, than = (first, case.size), (second, case.size)
    seen = compared(cell, than=than, observed=case.observed)
    shown = bounded(seen, contrast=difference(cell, than=than), case=case)
    return _Step(start, end, seen, over(seen, threshold=expect.by), over(shown, threshold=expect.by))


def _of_smallest(steps: list[_Step], *, case: Case) -> Interval:
    """The interval of the smallest step's expectation, over steps in which nothing diverged.

    Source: Berger, "Multiparameter hypothesis testing and acceptance sampling", Technometrics 24 (1982), p. 295. The
    smallest of the lower ends is under the smallest step unless that step's own is not: no correction. The smallest of the
    upper ends is over it unless one of them all is under its step: Bonferroni over the steps.
    """
    seen = [step.seen for step in steps if isinstance(step.seen, PairedT)]
    shared = 1.0 - (1.0 - case.level) / len(steps)
    lows, highs = ([one.interval(level=level)[end] for one in seen] for end, level in ((0, case.level), (1, shared)))
    return case.interval((min(lows), min(highs)))


def _more(steps: list[_Step], *, by: float) -> More | None:
    """Seeds until all steps that look large enough are shown to be, or one that does not is shown not to be."""
    seen = [step.seen for step in steps if isinstance(step.seen, PairedT)]
    if len(seen) < len(steps):
        return None
    short = [step for step in seen if step.mean <= by]

    def estimate(alpha: float) -> int | None:
        if short:
            needed = [more_for_interval(s, distance=by - s.mean, alpha=alpha / len(steps)) for s in short]
            return min((n for n in needed if n is not None), default=None)
        needed = [more_for_interval(s, distance=s.mean - by, alpha=alpha) for s in seen]
        return None if None in needed else max(n for n in needed if n is not None)

    return estimate


def _found(weakest: _Step, *, interval: Interval | None, expect: Order, case: Case) -> str:
    seen, metric = weakest.seen, case.metric
    where = f"along {ROW.join(expect.along)} the weakest step is from {weakest.start} to {weakest.end}"
    match seen:
        case PairedT():
            assert interval is not None, "a step without a divergence has one"
            words = ("rising", "falling") if expect.direction == "falls" else ("falling", "rising")
            spread = sentences.within(interval, words=words, metric=metric)
            change = f"{words[seen.mean > 0]} by {sentences.amount(abs(seen.mean), metric=metric)}"
            doing = "staying as it is" if seen.mean == 0.0 else change
            return f"{where}, {metric} {doing}, {spread}, {sentences.seeds(seen.num_pairs)}"
        case RankTest():
            cells = [(weakest.start, case.size), (weakest.end, case.size)]
            return f"{where}: {sentences.ranked(case.observed, cells=cells)}"


def _asked(expect: Order, *, metric: str) -> str:
    verb = {"falls": "fall", "rises": "rise"}[expect.direction]
    more_than = f" by more than {sentences.amount(expect.by, metric=metric)}" if expect.by else ""
    return f"the claim asked for it to {verb}{more_than} at every step"
