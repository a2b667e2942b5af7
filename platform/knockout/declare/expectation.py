"""What a claim expects: the members of a closed union, told apart by the key `is`.

The invariant: a member names its variants and its numbers, and nothing that would have to be evaluated; what cannot be
decided whatever the runs say is refused at load.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, ConfigDict, Field, model_validator

from knockout.declare.along import Knee, Order, Threshold
from knockout.declare.base import Name, conflicts
from knockout.declare.expected import BASELINE, Ends, Expected, Gap, NonNegativeFloat, Place, alike, ordered
from knockout.declare.metric import LOSSES, Metric


class _OfOne(Expected):
    """What one variant is expected to do."""

    variant: Name
    """The variant that the claim is about."""

    @property
    def named(self) -> Mapping[Place, Name]:
        return {("variant",): self.variant}


class _OfTwo(_OfOne):
    """How one variant is expected to differ from another."""

    than: Name = BASELINE
    """The variant that it is compared with."""

    @property
    def named(self) -> Mapping[Place, Name]:
        return {("variant",): self.variant, ("than",): self.than}

    @model_validator(mode="after")
    def _two_variants(self) -> _OfTwo:
        conflicts(type(self).__name__, list(alike(self.variant, than=self.than, at="than")))
        return self


class Compared(_OfTwo):
    """The variant's metric is over (worse, higher) or under (better, lower) another's, by more than a margin."""

    relation: Literal["worse", "better", "higher", "lower"] = Field(alias="is")
    """worse or better for a loss, higher or lower for any metric."""
    by: NonNegativeFloat = 0.0
    """How much at least, in the metric's unit: nats, bits per byte, bytes, tokens per second."""
    metric: Metric | None = None
    """What is compared; without it, the study's `decide.metric`."""

    @model_validator(mode="after")
    def _has_a_better_side(self) -> Compared:
        if self.relation in ("worse", "better") and self.metric is not None and self.metric not in LOSSES:
            rule = f"{self.metric} is no loss, so neither side of it is {self.relation}: write higher or lower"
            conflicts("Compared", [("is", self.relation, rule)])
        return self


def _either_key(schema: dict[str, Any]) -> None:
    """Editors must also accept `to`, the other spelling of `than`."""
    schema["properties"]["to"] = schema["properties"]["than"]


class Equivalent(_OfTwo):
    """The variant's metric is within a margin of another's, on either side."""

    model_config = ConfigDict(json_schema_extra=_either_key)

    relation: Literal["equivalent"] = Field(alias="is")
    """equivalent."""
    than: Name = Field(default=BASELINE, validation_alias=AliasChoices("than", "to"))
    """The variant that it is compared with; may also be written `to`."""
    margin: Annotated[float, Field(gt=0.0)] | None = None
    """The largest difference that does not matter; without it, the study's `decide.margin`, which is one of losses."""
    metric: Metric | None = None
    """What is compared; without it, the study's `decide.metric`."""

    @model_validator(mode="after")
    def _has_a_margin(self) -> Equivalent:
        if self.margin is None and self.metric is not None and self.metric not in LOSSES:
            rule = f"the study's margin is one of losses: say how much of {self.metric} does not matter"
            conflicts("Equivalent", [("margin", None, rule)])
        return self


class Ratio(_OfTwo):
    """The variant's metric, divided by another's, lies between two ends."""

    relation: Literal["ratio"] = Field(alias="is")
    """ratio."""
    between: Ends
    """The least and the greatest ratio; either may be null."""
    metric: Metric | None = None
    """What is compared; without it, the study's `decide.metric`."""

    @model_validator(mode="after")
    def _ends(self) -> Ratio:
        low, high = self.between
        negative = (low is not None and low < 0.0) or (high is not None and high <= 0.0)
        rule = "what is divided is over 0, and so is its ratio"
        conflicts("Ratio", [*ordered(self.between, at="between"), *([("between", self.between, rule)] if negative else [])])
        return self


class Trend(_OfTwo):
    """The gap to another variant changes with size: its slope per doubling of the baseline's parameters."""

    relation: Literal["trend"] = Field(alias="is")
    """trend."""
    direction: Literal["grows", "shrinks"]
    """grows: the gap, the variant's metric minus the other's, rises with size; shrinks: it falls."""
    by: NonNegativeFloat = 0.0
    """How much at least for each doubling of the baseline's parameters, in the metric's unit."""
    metric: Metric | None = None
    """What is compared; without it, the study's `decide.metric`."""


class Interaction(_OfTwo):
    """The gap between two variants is larger than the gap between two others, by more than a margin."""

    relation: Literal["interaction"] = Field(alias="is")
    """interaction."""
    over: Gap
    """The other gap."""
    by: NonNegativeFloat = 0.0
    """How much larger at least, in the metric's unit."""
    metric: Metric | None = None
    """What is compared; without it, the study's `decide.metric`."""

    @property
    def named(self) -> Mapping[Place, Name]:
        return {**super().named, ("over", "variant"): self.over.variant, ("over", "than"): self.over.than}

    @model_validator(mode="after")
    def _two_gaps(self) -> Interaction:
        if (self.variant, self.than) == (self.over.variant, self.over.than):
            rule = f"this is the gap between '{self.variant}' and '{self.than}' itself: name another"
            conflicts("Interaction", [("over", self.over.model_dump(), rule)])
        return self


class Diverges(_OfOne):
    """The variant's training diverges in more than half of its seeds."""

    relation: Literal["diverges"] = Field(alias="is")
    """diverges."""


class Causality(_OfOne):
    """Outputs do (not_causal) or do not (causal) depend on later tokens: an identity, decided by
    calculation.
    """

    relation: Literal["causal", "not_causal"] = Field(alias="is")
    """causal or not_causal."""


Measurable = Compared | Equivalent | Ratio | Trend | Interaction | Order | Knee | Threshold
"""What is decided on the values of a metric."""

Expectation = Annotated[Measurable | Diverges | Causality, Field(discriminator="relation")]
"""What would make a claim true; the key `is` names the member."""
