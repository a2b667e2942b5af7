"""One-sided evidence about an effect: the common language of the tests.

The invariant: `above(t)` is a p-value of "the effect is at most t", `below(t)` of "the effect is at least
t"; each keeps its level whatever the truth is, so every claim is some combination of the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol


class Evidence(Protocol):
    """What a test must answer about the effect (variant minus the other; over zero is worse)."""

    def above(self, threshold: float) -> float:
        """One-sided p-value against "the effect is at most `threshold`"."""
        ...

    def below(self, threshold: float) -> float:
        """One-sided p-value against "the effect is at least `threshold`"."""
        ...

    def exactly(self, threshold: float) -> bool:
        """Whether the effect is known to be `threshold`, without any spread."""
        ...


@dataclass(frozen=True)
class Sides:
    """One-sided p-values of the two conclusions about a claim.

    `wrong` is how many of them can be wrong at once: two where they meet at a boundary, one where each possible truth
    belongs to one of them alone.
    """

    support: float
    refute: float
    wrong: Literal[1, 2] = 2

    @property
    def p(self) -> float:
        """The p-value of the conclusion that the evidence points to, for all that can be wrong."""
        return min(1.0, self.wrong * min(self.support, self.refute))

    @property
    def supports(self) -> bool:
        """The direction in which the evidence points."""
        return self.support < self.refute


def over(evidence: Evidence, *, threshold: float) -> Sides:
    """Sides of "the effect is over `threshold`"; an effect known to be exactly there is not over it."""
    if evidence.exactly(threshold):
        return Sides(support=1.0, refute=0.0)
    return Sides(support=evidence.above(threshold), refute=evidence.below(threshold))


def under(evidence: Evidence, *, threshold: float) -> Sides:
    """Sides of "the effect is under `threshold`"; an effect known to be exactly there is not under it."""
    if evidence.exactly(threshold):
        return Sides(support=1.0, refute=0.0)
    return Sides(support=evidence.below(threshold), refute=evidence.above(threshold))


def between(evidence: Evidence, *, low: float, high: float) -> Sides:
    """Sides of "the effect is in [low, high]": two one-sided tests, both of which must reject.

    Source: Schuirmann, "A comparison of the two one-sided tests procedure and the power approach for
    assessing the equivalence of average bioavailability", J. Pharmacokinet. Biopharm. 15 (1987), p. 657.
    The refuting side is the mirror image: the effect lies over the upper end or under the lower one.
    """
    if evidence.exactly(low) or evidence.exactly(high):
        return Sides(support=0.0, refute=1.0)
    return Sides(
        support=max(evidence.above(low), evidence.below(high)),
        refute=min(evidence.below(low), evidence.above(high)),
    )


def all_of(sides: Sequence[Sides]) -> Sides:
    """Sides of "every one of these claims holds".

    Source: Berger, "Multiparameter hypothesis testing and acceptance sampling", Technometrics 24 (1982), p. 295: the
    intersection-union test supports it at the largest of the p-values, without correction. It is refuted by the smallest
    p-value of the reverse, times their number (Bonferroni).
    """
    return Sides(
        support=max(side.support for side in sides),
        refute=min(1.0, len(sides) * min(side.refute for side in sides)),
    )
