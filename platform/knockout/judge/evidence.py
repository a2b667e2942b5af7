"""One-sided evidence about an effect: the common language of the tests.

The invariant: `above(t)` is a p-value of "the effect is at most t", `below(t)` of "the effect is at least
t"; each keeps its level whatever the truth is, so every claim is some combination of the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Evidence(Protocol):
    """What a test must answer about the effect (variant minus the other; over zero is worse)."""

    def above(self, threshold: float) -> float:
        """One-sided p-value against "the effect is at most `threshold`"."""
        ...

    def below(self, threshold: float) -> float:
        """One-sided p-value against "the effect is at least `threshold`"."""
        ...


@dataclass(frozen=True)
class Sides:
    """One-sided p-values of the two conclusions about a claim."""

    support: float
    refute: float

    @property
    def p(self) -> float:
        """Two-sided p-value: the smaller side, doubled, because both directions were open."""
        return min(1.0, 2.0 * min(self.support, self.refute))

    @property
    def supports(self) -> bool:
        """The direction in which the evidence points."""
        return self.support < self.refute


def worse(evidence: Evidence, *, by: float) -> Sides:
    """Sides of "the variant is worse by more than `by`"."""
    return Sides(support=evidence.above(by), refute=evidence.below(by))


def better(evidence: Evidence, *, by: float) -> Sides:
    """Sides of "the variant is better by more than `by`"."""
    return Sides(support=evidence.below(-by), refute=evidence.above(-by))


def equivalent(evidence: Evidence, *, margin: float) -> Sides:
    """Sides of "the difference is within ± `margin`": two one-sided tests, both of which must reject.

    Source: Schuirmann, "A comparison of the two one-sided tests procedure and the power approach for
    assessing the equivalence of average bioavailability", J. Pharmacokinet. Biopharm. 15 (1987), p. 657.
    The refuting side is the mirror image: the difference lies over the margin or under its negative.
    """
    return Sides(
        support=max(evidence.below(margin), evidence.above(-margin)),
        refute=min(evidence.above(margin), evidence.below(-margin)),
    )
