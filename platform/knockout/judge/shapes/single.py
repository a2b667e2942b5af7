"""Claims about one contrast: a difference, a difference of differences, or a slope.

The invariant: the claim is a range for the contrast's expectation; where its ends are is all that sets the relations apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from knockout.declare.expectation import Compared, Equivalent, Interaction, Trend
from knockout.judge import sentences
from knockout.judge.shapes.bounds import bounded, held_back
from knockout.judge.shapes.contrast import Contrast, Tested, difference, evidence, excess
from knockout.judge.shapes.measured import Case, Measured, More
from knockout.judge.statistics.evidence import Evidence, Sides, between, over, under
from knockout.judge.statistics.planning import more_for_interval, more_for_ranks
from knockout.judge.statistics.ranks import RankTest, SignedRank, share_worse
from knockout.judge.statistics.student import PairedT
from knockout.judge.verdict import Verdict


@dataclass(frozen=True)
class Range:
    """Where a claim expects an effect: over `low` and under `high`, one of which may be infinite."""

    low: float = -math.inf
    high: float = math.inf

    def sides(self, seen: Evidence) -> Sides:
        """The evidence for and against the effect lying there."""
        if math.isinf(self.high):
            return over(seen, threshold=self.low)
        return under(seen, threshold=self.high) if math.isinf(self.low) else between(seen, low=self.low, high=self.high)

    def distance(self, effect: float) -> float:
        """How far an effect is from the nearest end."""
        return min(abs(effect - end) for end in (self.low, self.high) if math.isfinite(end))


def compare(expect: Compared | Equivalent, *, case: Case) -> Measured | Verdict:
    """The evidence on a difference between two variants, or on there being none that matters."""
    words = sentences.SIDES if expect.relation in ("worse", "better", "equivalent") else sentences.HEIGHTS
    contrast = difference((expect.variant, case.size), than=(expect.than, case.size))
    about = sentences.Difference(f"{expect.variant} is", expect.than, words if case.is_loss else sentences.HEIGHTS)
    if isinstance(expect, Equivalent):
        margin = case.decide.margin if expect.margin is None else expect.margin
        asked = sentences.asked_within(margin, metric=case.metric)
        return _measure(case, contrast=contrast, wanted=Range(-margin, margin), threshold=margin, about=about, asked=asked)
    up = expect.relation in ("worse", "higher")
    asked = sentences.asked(expect.relation, threshold=expect.by, metric=case.metric)
    return _measure(case, contrast=contrast, wanted=_side(expect.by, up=up), threshold=expect.by, about=about, asked=asked)


def interact(expect: Interaction, *, case: Case) -> Measured | Verdict:
    """The evidence on one gap being larger than another: a difference of differences."""
    other = expect.over
    gap = difference((expect.variant, case.size), than=(expect.than, case.size))
    contrast = excess(gap, over=difference((other.variant, case.size), than=(other.than, case.size)))
    ours, theirs = f"the gap of {expect.variant} over {expect.than} is", f"that of {other.variant} over {other.than}"
    about = sentences.Difference(ours, theirs, sentences.EXTENTS)
    asked = sentences.asked("larger", threshold=expect.by, metric=case.metric)
    wanted = _side(expect.by, up=True)
    return _measure(case, contrast=contrast, wanted=wanted, threshold=expect.by, about=about, asked=asked)


def follow(expect: Trend, *, case: Case, contrast: Contrast) -> Measured | Verdict:
    """The evidence on the slope of a gap over sizes."""
    about = sentences.Slope(f"the gap of {expect.variant} over {expect.than} on {case.metric}")
    asked = sentences.asked_trend(expect.direction, by=expect.by, metric=case.metric)
    wanted = _side(expect.by, up=expect.direction == "grows")
    return _measure(case, contrast=contrast, wanted=wanted, threshold=expect.by, about=about, asked=asked)


def more_for(seen: Tested, *, wanted: Range) -> More | None:
    """How many more seeds would tell on which side of the range's nearest end the effect is."""
    match seen:
        case PairedT():
            return lambda alpha: more_for_interval(seen, distance=wanted.distance(seen.mean), alpha=alpha)
        case RankTest():
            edge = wanted.high if math.isfinite(wanted.high) else wanted.low
            share = share_worse([value - edge for value in seen.variant], seen.than)
            return lambda alpha: more_for_ranks(share, num_pairs=len(seen.variant), alpha=alpha)
        case SignedRank():
            return None


def _side(by: float, *, up: bool) -> Range:
    return Range(low=by) if up else Range(high=-by)


def _measure(
    case: Case,
    *,
    contrast: Contrast,
    wanted: Range,
    threshold: float,
    about: sentences.Difference | sentences.Slope,
    asked: str,
) -> Measured | Verdict:
    seen = evidence(contrast, observed=case.observed)
    if seen is None:
        return case.undecidable(sentences.cancelled(case.observed, cells=list(contrast)))
    if isinstance(seen, PairedT):
        interval = case.interval(seen.interval(level=case.level))
        found = about.found(seen, interval=interval, metric=case.metric)
        verdict = case.verdict(effect=seen.mean, interval=interval, threshold=threshold)
    else:
        found = sentences.ranked(case.observed, cells=list(contrast))
        verdict = case.verdict(effect=None, interval=None, threshold=threshold)
    shown = wanted.sides(bounded(seen, contrast=contrast, case=case))
    return Measured(
        verdict,
        shown,
        found=found,
        asked=asked,
        more=more_for(seen, wanted=wanted),
        left_out=case.observed.missing,
        held_back=held_back(case, measured=wanted.sides(seen), shown=shown),
    )
