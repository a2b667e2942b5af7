"""What a claim states, in one form whatever words it is written in: a quantity, and the range in which it lies.

The invariant: two claims state the same exactly when their statements are equal, and of two statements about one quantity
whose ranges share nothing only one can be true.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from knockout.declare.claim import Decide
from knockout.declare.expectation import (
    Causality,
    Compared,
    Diverges,
    Equivalent,
    Expectation,
    Interaction,
    Knee,
    Measurable,
    Order,
    Ratio,
    Threshold,
    Trend,
)
from knockout.declare.metric import CHEATED
from knockout.declare.plain import canonical


@dataclass(frozen=True)
class Statement:
    """`of` is what is measured, `low` and `high` the range in which it is stated to lie."""

    of: str
    low: float = 0.0
    high: float = 0.0

    def excludes(self, other: Statement) -> bool:
        """Whether only one of the two can be true: of one quantity, they leave each other no range."""
        return self.of == other.of and (self.high <= other.low or other.high <= self.low) and self != other


def statement(expect: Expectation, *, decide: Decide, seeing: Collection[str]) -> Statement:
    """What an expectation states; `seeing` are the variants that see the future."""
    match expect:
        case Diverges() | Causality():
            return Statement(canonical(expect.model_dump(mode="json")))
        case Order() | Threshold():
            return _whole(expect, metric=_metric(expect, decide=decide, seeing=seeing), margin=None)
        case Knee(margin=margin):
            metric = _metric(expect, decide=decide, seeing=seeing)
            return _whole(expect, metric=metric, margin=decide.margin if margin is None else margin)
        case Ratio():
            low, high = expect.between
            of = {"ratio": [expect.variant, expect.than], "metric": _metric(expect, decide=decide, seeing=seeing)}
            return Statement(canonical(of), 0.0 if low is None else low, math.inf if high is None else high)
        case _:
            return _contrast(expect, decide=decide, metric=_metric(expect, decide=decide, seeing=seeing))


def _contrast(expect: Compared | Equivalent | Interaction | Trend, *, decide: Decide, metric: str) -> Statement:
    """A difference, a difference of differences, or the slope of one; its sign is that of its first variant by name."""
    match expect:
        case Equivalent(margin=margin):
            margin = decide.margin if margin is None else margin
            low, high = -margin, margin
        case Compared(relation="better" | "lower") | Trend(direction="shrinks"):
            low, high = -math.inf, -expect.by
        case _:
            low, high = expect.by, math.inf
    weights = {name: weight for name, weight in sorted(_weights(expect).items()) if weight}
    turned = next(iter(weights.values()), 1) < 0
    told = {name: -weight if turned else weight for name, weight in weights.items()}
    of = canonical({"slope" if isinstance(expect, Trend) else "difference": told, "metric": metric})
    return Statement(of, -high, -low) if turned else Statement(of, low, high)


def _weights(expect: Compared | Equivalent | Interaction | Trend) -> Mapping[str, int]:
    weights: dict[str, int] = {}
    signs = (1, -1, -1, 1)
    for name, sign in zip(expect.named.values(), signs, strict=False):
        weights[name] = weights.get(name, 0) + sign
    return weights


def _whole(expect: Order | Knee | Threshold, *, metric: str, margin: float | None) -> Statement:
    filled = {**expect.model_dump(mode="json"), "metric": metric, "margin": margin}
    return Statement(canonical(filled))


def _metric(expect: Measurable, *, decide: Decide, seeing: Collection[str]) -> str:
    """What decides: where no metric is named and a variant would read the study's off its input, generation_loss does."""
    if expect.metric is not None:
        return expect.metric
    sees = any(name in seeing for name in expect.named.values())
    return "generation_loss" if sees and decide.metric in CHEATED else decide.metric
