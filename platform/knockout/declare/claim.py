"""A claim: a statement with its source, and what would make it true.

The invariant: what is expected is one member of a small closed union told apart by the key `is`. There is
no expression language, so every claim can be checked against a study's variants before anything runs.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from knockout.declare.base import Declaration
from knockout.declare.expectation import Causality, Compared, Diverges, Equivalent, Expectation
from knockout.declare.expected import BASELINE
from knockout.declare.metric import Loss

ClaimId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$")]
"""A claim's name, such as T6.4-peek: document, section, subject."""

__all__ = ["BASELINE", "Causality", "Claim", "Compared", "Competence", "Decide", "Diverges", "Equivalent", "Expectation"]


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

    metric: Loss = "val_loss"
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
