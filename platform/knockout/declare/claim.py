"""A claim: a statement with its source, and what would make it true.

The invariant: what is expected is one member of a small closed union told apart by the key `is`. There is
no expression language, so every claim can be checked against a study's variants before anything runs.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, ConfigDict, Field, StringConstraints, model_validator

from knockout.declare.base import Declaration, Name, conflicts

Metric = Literal["val_loss", "train_loss", "bits_per_byte", "generation_loss"]
"""What is compared. Losses are in nats per token; lower is better for all of them."""

ClaimId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$")]
"""A claim's name, such as T6.4-peek: document, section, subject."""

BASELINE: Name = "baseline"
"""The variant that a comparison is against when a claim names none."""


class _Expected(Declaration):
    """What one variant is expected to do. Written back under the key `is`."""

    model_config = ConfigDict(serialize_by_alias=True)

    variant: Name
    """The variant that the claim is about."""


class Compared(_Expected):
    """The variant's loss is over (worse) or under (better) another's, by more than a margin."""

    relation: Literal["worse", "better"] = Field(alias="is")
    """worse or better."""
    than: Name = BASELINE
    """The variant that it is compared with."""
    by: Annotated[float, Field(ge=0.0)] = 0.0
    """How much at least, in the metric's unit (nats per token, or bits per byte)."""
    metric: Metric | None = None
    """What is compared; without it, the study's `decide.metric`."""

    @model_validator(mode="after")
    def _two_variants(self) -> Compared:
        _differ("Compared", self.variant, self.than)
        return self


def _either_key(schema: dict[str, Any]) -> None:
    """Editors must also accept `to`, the other spelling of `than`."""
    schema["properties"]["to"] = schema["properties"]["than"]


class Equivalent(_Expected):
    """The variant's loss is within a margin of another's, on either side."""

    model_config = ConfigDict(json_schema_extra=_either_key)

    relation: Literal["equivalent"] = Field(alias="is")
    """equivalent."""
    than: Name = Field(default=BASELINE, validation_alias=AliasChoices("than", "to"))
    """The variant that it is compared with; may also be written `to`."""
    margin: Annotated[float, Field(gt=0.0)] | None = None
    """The largest difference that does not matter; without it, the study's `decide.margin`."""
    metric: Metric | None = None
    """What is compared; without it, the study's `decide.metric`."""

    @model_validator(mode="after")
    def _two_variants(self) -> Equivalent:
        _differ("Equivalent", self.variant, self.than)
        return self


class Diverges(_Expected):
    """The variant's training diverges in more than half of its seeds."""

    relation: Literal["diverges"] = Field(alias="is")
    """diverges."""


class Causality(_Expected):
    """Outputs do (not_causal) or do not (causal) depend on later tokens: an identity, decided by
    calculation.
    """

    relation: Literal["causal", "not_causal"] = Field(alias="is")
    """causal or not_causal."""


Expectation = Annotated[Compared | Equivalent | Diverges | Causality, Field(discriminator="relation")]
"""What would make a claim true; the key `is` names the member."""


class Claim(Declaration):
    """A statement that a study decides."""

    id: ClaimId
    """The claim's name, unique in its study."""
    says: str
    """The statement, in one sentence."""
    expect: Expectation
    """What would make it true."""
    source: str | None = None
    """Where it is stated, or a paper that disagrees."""


class Decide(Declaration):
    """How a study's claims are decided."""

    metric: Metric = "val_loss"
    """What is compared where a claim names none; a model that sees the future goes by generation_loss."""
    margin: Annotated[float, Field(gt=0.0)] = 0.02
    """The largest difference that counts as none, in the metric's unit."""
    alpha: Annotated[float, Field(gt=0.0, le=0.5)] = 0.05
    """Chance of a wrong conclusion over all statistical claims of a size."""


class Competence(Declaration):
    """What the baseline must have learnt before a comparison with it means anything."""

    floor: Literal["unigram", "bigram", "none"] = "bigram"
    """The corpus' cross-entropy that the baseline must beat; none asks for nothing."""
    by: Annotated[float, Field(ge=0.0)] = 0.1
    """How far under the floor the baseline's mean loss must be, in nats per token."""


def _differ(model: str, variant: str, than: str) -> None:
    if variant == than:
        conflicts(model, [("than", than, f"'{variant}' cannot be compared with itself: name another variant")])
