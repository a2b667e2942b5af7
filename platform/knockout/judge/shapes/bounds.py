"""What a claim can show where a cell has learnt nothing, so that its loss is a bound and no measurement.

The invariant: a conclusion stands only if it would stand with any larger loss in the place of one that is at the floor. So a
variant at the floor is worse than one that has learnt, and stays so; that it is not worse by more, that it equals another at
the floor, or that one gap is smaller than another because both end at the floor, is never concluded.
"""

from __future__ import annotations

from dataclasses import dataclass

from knockout.judge import sentences
from knockout.judge.shapes.contrast import Contrast
from knockout.judge.shapes.measured import Case
from knockout.judge.statistics.evidence import Evidence, Sides


@dataclass(frozen=True)
class Bounded:
    """Evidence on an effect that in truth may be larger than it was measured, or smaller, or either.

    Source: Tobin, "Estimation of relationships for limited dependent variables", Econometrica 26 (1958), p. 24: of a value
    at the limit it is known only on which side of it the truth lies. A p-value only rises here, so errors keep their rate.
    """

    seen: Evidence
    may_be_larger: bool
    may_be_smaller: bool

    def above(self, threshold: float) -> float:
        """One-sided p-value against "the effect is at most `threshold`"."""
        return 1.0 if self.may_be_smaller else self.seen.above(threshold)

    def below(self, threshold: float) -> float:
        """One-sided p-value against "the effect is at least `threshold`"."""
        return 1.0 if self.may_be_larger else self.seen.below(threshold)

    def exactly(self, threshold: float) -> bool:
        """Never: a bound is not known exactly."""
        return False


def bounded(seen: Evidence, *, contrast: Contrast, case: Case) -> Evidence:
    """The evidence on a contrast, a bound where a cell of it has learnt nothing.

    A cell counts on the side of its weight; one that stands on both sides of a difference cancels, and counts on none.
    """
    weights = [weight for cell, weight in contrast.items() if cell in case.unlearnt and weight != 0.0]
    if not weights:
        return seen
    return Bounded(seen, may_be_larger=max(weights) > 0.0, may_be_smaller=min(weights) < 0.0)


def held_back(case: Case, *, measured: Sides, shown: Sides) -> str | None:
    """Why what was measured does not show what it points to: cells at the floor; None where it does, or would not anyway.

    `measured` takes every loss at its word, `shown` those at the floor as bounds.
    """
    lost = shown.support > measured.support if measured.supports else shown.refute > measured.refute
    if not lost:
        return None
    sizes = {size for _, size in case.observed.values}
    at_floor, others = (
        [name if len(sizes) == 1 else f"{name} at {size}" for name, size in case.observed.values if told((name, size))]
        for told in (case.unlearnt.__contains__, lambda cell: cell not in case.unlearnt)
    )
    return sentences.at_floor(at_floor, others=others)
