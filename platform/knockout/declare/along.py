"""Expectations along a row of variants: an order, a knee, a threshold.

The invariant: the row stands in its order, and what is expected leaves something that would speak against it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field, model_validator

from knockout.declare.base import Conflict, Name, conflicts
from knockout.declare.expected import Ends, Expected, Gap, NonNegativeFloat, Place, inside, ordered
from knockout.declare.metric import Loss, Metric


class Order(Expected):
    """A metric falls or rises along a row of variants, at every step."""

    relation: Literal["order"] = Field(alias="is")
    """order."""
    along: Annotated[list[Name], Field(min_length=2)]
    """The variants, in their order."""
    direction: Literal["falls", "rises"]
    """What the metric does along them."""
    by: NonNegativeFloat = 0.0
    """How much at least at every step, in the metric's unit."""
    metric: Metric | None = None
    """What is compared; without it, the study's `decide.metric`."""

    @property
    def named(self) -> Mapping[Place, Name]:
        return {("along", index): name for index, name in enumerate(self.along)}

    @model_validator(mode="after")
    def _each_once(self) -> Order:
        twice = [index for index, name in enumerate(self.along) if name in self.along[:index]]
        conflicts("Order", [(f"along.{i}", self.along[i], "stands in the row already") for i in twice])
        return self


class Knee(Expected):
    """The smallest x beyond which doubling it lowers the loss by less than a margin lies within two ends."""

    relation: Literal["knee"] = Field(alias="is")
    """knee."""
    along: Annotated[dict[str, Name], Field(min_length=2)]
    """For each x, from the smallest on, its variant; each x is twice the one before it."""
    margin: Annotated[float, Field(gt=0.0)] | None = None
    """What a doubling must gain to be worth it; without it, the study's `decide.margin`."""
    within: Ends
    """Between which x the knee is expected; the largest x of `along` stands for itself and all beyond it."""
    metric: Loss | None = None
    """What is compared; without it, the study's `decide.metric`."""

    @property
    def named(self) -> Mapping[Place, Name]:
        return {("along", x): name for x, name in self.along.items()}

    @model_validator(mode="after")
    def _doublings(self) -> Knee:
        found = list(_axis(self.along))
        if not found:
            places = [float(x) for x in self.along]
            for (low, high), x in zip(itertools.pairwise(places), list(self.along)[1:], strict=True):
                if high != 2 * low:
                    found.append((f"along.{x}", x, f"must be {2 * low:g}, twice the x before it"))
            found += _decidable(self.within, places=places)
        row = list(self.along.values())
        found += [
            (f"along.{x}", name, "stands in the row already")
            for i, (x, name) in enumerate(self.along.items())
            if name in row[:i]
        ]
        conflicts("Knee", found)
        return self


class Threshold(Expected):
    """The smallest x at which one variant is worse than another by more than a margin lies within two ends."""

    relation: Literal["threshold"] = Field(alias="is")
    """threshold."""
    along: Annotated[dict[str, Gap], Field(min_length=2)]
    """For each x, from the smallest on, the variant and what it is compared with there."""
    by: NonNegativeFloat
    """From which gap on it fails, in the metric's unit; a divergence is a failure too."""
    within: Ends
    """Between which x it is expected to fail first; without an upper end it may also hold at all of them."""
    metric: Loss | None = None
    """What is compared; without it, the study's `decide.metric`."""

    @property
    def named(self) -> Mapping[Place, Name]:
        gaps = self.along.items()
        return {
            **{("along", x, "variant"): gap.variant for x, gap in gaps},
            **{("along", x, "than"): gap.than for x, gap in gaps},
        }

    @model_validator(mode="after")
    def _rising(self) -> Threshold:
        found = list(_axis(self.along))
        conflicts("Threshold", found or list(_decidable(self.within, places=[*map(float, self.along), math.inf])))
        return self


def _axis(along: Mapping[str, object]) -> Iterator[Conflict]:
    """Every x must be a number over zero and over the one before it."""
    last = 0.0
    for x in along:
        value = _number(x)
        if value is None or value <= 0.0:
            yield f"along.{x}", x, "must be a number over 0: the x of its variant"
        elif value <= last:
            yield f"along.{x}", x, f"must be over {last:g}, the x before it"
        last = last if value is None else max(last, value)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _decidable(within: Sequence[float | None], *, places: Sequence[float]) -> Iterator[Conflict]:
    """The expected part of the places must be some of them, and not all."""
    shown = ", ".join("beyond" if math.isinf(x) else f"{x:g}" for x in places)
    among = [inside(within, x=x) for x in places]
    yield from (wrong := list(ordered(within, at="within")))
    if not wrong and (all(among) or not any(among)):
        which = "all" if all(among) else "none"
        yield "within", within, f"holds {which} of what can be found ({shown}), so that nothing can be decided"
