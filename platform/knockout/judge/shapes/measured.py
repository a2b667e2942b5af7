"""What measuring a claim gives: evidence for and against it, before any correction for the other claims.

The invariant: whatever shape a claim has, it comes down to two one-sided p-values and to words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from knockout.declare.claim import Claim, Decide
from knockout.declare.metric import LOSSES
from knockout.judge.shapes.observed import Cell, Observed
from knockout.judge.statistics.evidence import Sides
from knockout.judge.verdict import Interval, Verdict, blank

More = Callable[[float], int | None]
"""How many more seeds would settle it at an alpha, as things look now; None past what is worth counting."""


@dataclass(frozen=True)
class Case:
    """A claim with the values that it is judged on; `size` in words."""

    claim: Claim
    size: str
    observed: Observed
    decide: Decide
    unlearnt: frozenset[Cell] = frozenset()
    """Cells whose losses are bounds, since they have learnt nothing; none where no loss is compared."""

    @property
    def metric(self) -> str:
        """What is compared."""
        return self.observed.metric

    @property
    def is_loss(self) -> bool:
        """Whether lower is better."""
        return self.metric in LOSSES

    def interval(self, ends: tuple[float, float]) -> Interval:
        """Ends of a confidence interval, with the level that all of a study's have."""
        return Interval(*ends, self.level)

    @property
    def level(self) -> float:
        """The level of the study's intervals, before correction for the other claims."""
        return 1.0 - self.decide.alpha

    def verdict(self, *, effect: float | None, interval: Interval | None, threshold: float | None) -> Verdict:
        """The verdict that is to be concluded."""
        return replace(
            blank(self.claim, size=self.size, outcome="inconclusive", reason=""),
            effect=effect,
            interval=interval,
            num_seeds=self.observed.num_seeds,
            metric=self.metric,
            threshold=threshold,
            cost_seconds=self.observed.cost_seconds,
        )

    def undecidable(self, reason: str) -> Verdict:
        """The verdict where the values say nothing, whatever their number."""
        parts = [reason, *([self.observed.missing] if self.observed.missing else [])]
        return replace(self.verdict(effect=None, interval=None, threshold=None), reason="; ".join(parts))


@dataclass(frozen=True)
class Measured:
    """Evidence for and against one claim, with the verdict that it fills in.

    `more` estimates how many more seeds would settle it; None where no honest estimate is known. `held_back` says why no
    number of seeds would: what was measured points to something that cells which have learnt nothing cannot show.
    """

    verdict: Verdict
    sides: Sides
    found: str
    asked: str
    more: More | None
    left_out: str | None
    held_back: str | None = None
