"""Where along an axis something is true for the first time: an exact confidence set by inverting tests.

The invariant: exactly one place is the true one, its hypothesis is rejected with probability alpha at most, and the set of
places that are not rejected is never empty.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from knockout.judge.statistics.evidence import Sides


@dataclass(frozen=True)
class First:
    """The places at which it may be true first, in their order, the last one standing for "at none of the others".

    `p[k]` rejects "at place k it is true for the first time": it is false at every place before and true at k.

    Source: Neyman, "Outline of a theory of statistical estimation based on the classical theory of probability", Phil.
    Trans. R. Soc. A 236 (1937), p. 333: the hypotheses that a test of level alpha does not reject are a confidence set. Each
    hypothesis here has several parts, all of which must hold; it is rejected where one of them is, by Bonferroni over them.
    """

    places: tuple[float, ...]
    p: tuple[float, ...]
    estimate: float

    def members(self, *, alpha: float) -> tuple[float, ...]:
        """The confidence set of level 1 - alpha."""
        return tuple(place for place, p in zip(self.places, self.p, strict=True) if p > alpha)

    def sides(self, *, inside: Collection[float]) -> Sides:
        """Sides of "the place is among these": the alphas at which the whole set is inside, or outside."""
        among = [(place in inside, p) for place, p in zip(self.places, self.p, strict=True)]
        return Sides(
            support=max(p for within, p in among if not within),
            refute=max(p for within, p in among if within),
            wrong=1,
        )


def first_true(steps: Sequence[Sides], *, places: Sequence[float]) -> First:
    """Where the first of several claims is true; `places` has one more than `steps`, for none of them.

    The best guess is the first claim that its evidence points to.
    """
    p = [_rejects([*(step.support for step in steps[:k]), steps[k].refute]) for k in range(len(steps))]
    guess = next((k for k, step in enumerate(steps) if step.supports), len(steps))
    none = _rejects([step.support for step in steps])
    return First(places=tuple(places), p=(*p, none), estimate=places[guess])


def _rejects(parts: Sequence[float]) -> float:
    """The p-value of all parts holding together."""
    return min(1.0, len(parts) * min(parts))
