"""Statements that calculation decides: counts of a declared architecture, and properties of the mathematics.

The invariant: what is expected is one member of a small closed union told apart by the key `is`; a number stands in
the file as the document prints it, with its unit and the rounding that it was printed with. No verdict is written.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from knockout.declare.base import Declaration, Name, Positive, conflicts
from knockout.declare.claim import ClaimId
from knockout.declare.properties import Property

Quantity = Literal[
    "parameters.total",
    "parameters.active",
    "parameters.embedding",
    "parameters.position",
    "parameters.attention",
    "parameters.feed_forward",
    "parameters.norm",
    "parameters.head",
    "layer.total",
    "layer.active",
    "layer.attention",
    "layer.feed_forward",
    "layer.norm",
    "layers.total",
    "layers.norm",
    "flops_per_token.forward",
    "flops_per_token.training",
    "kv_cache.bytes_per_token",
    "kv_cache.bytes",
    "bytes.weights",
    "bytes.optimizer",
    "numbers.weights",
    "numbers.gradients",
    "numbers.moments",
    "heads.width",
]
"""What can be counted. `layer` is the last block, `layers` all blocks together; `numbers` are those that training with
Adam keeps; bytes are at 2 a number (float16), Adam's moments at 4."""

Unit = Literal["one", "%", "K", "M", "B", "MB", "GB", "MiB", "GiB"]
"""Units of printed numbers. K, M and B are thousand, million and billion; MB and GB are decimal, MiB and GiB binary."""

UNITS: dict[Unit, float] = {
    "one": 1,
    "%": 0.01,
    "K": 1e3,
    "M": 1e6,
    "B": 1e9,
    "MB": 1e6,
    "GB": 1e9,
    "MiB": 2**20,
    "GiB": 2**30,
}

Patch = dict[str, Any]
"""Settings of the architecture to change, by name or dotted path; a mapping merges into its slot."""

Step = Literal["queries", "keys", "values", "keys_transposed", "products", "scores", "masked", "weights", "outputs"]
"""Steps of the example worked by hand: projections, one head's products before and after scaling, and what follows."""

Numbers = list[float | None] | list[list[float | None]]
"""A row, or a matrix by rows; null stands for minus infinity."""


class _Calculated(Declaration):
    """Written back under the key `is`."""

    model_config = ConfigDict(serialize_by_alias=True)


class Other(Declaration):
    """The other declaration of a comparison; what is not written is as in the first."""

    preset: Name | None = None
    """A declaration in ablations/presets/."""
    set: Patch | None = None
    """Settings changed in the preset."""
    quantity: Quantity | None = None
    """What is counted."""


class _Counted(_Calculated):
    """A counted number, and what the document says of it: a value with its rounding, or bounds."""

    preset: Name
    """A declaration in ablations/presets/."""
    set: Patch = {}
    """Settings changed in the preset."""
    quantity: Quantity | Annotated[list[Quantity], Field(min_length=2)]
    """What is counted; of several, the sum."""
    context: Positive | None = None
    """Tokens in the KV cache and under attention; by default the preset's own."""
    unit: Unit = "one"
    """Unit of the printed number."""
    value: float | None = None
    """The printed number. Either this, or bounds."""
    tolerance: Annotated[float, Field(ge=0.0)] = 0.0
    """What its rounding leaves open on either side, in the unit; 0 for a number printed in full."""
    low: float | None = None
    """At least this, in the unit."""
    high: float | None = None
    """At most this, in the unit."""

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """What is counted and added."""
        return tuple(self.quantity) if isinstance(self.quantity, list) else (self.quantity,)

    @model_validator(mode="after")
    def _says_something(self) -> _Counted:
        bounded = self.low is not None or self.high is not None
        if (self.value is None) != bounded:
            rule = "give either `value` with its tolerance, or `low` and `high`, or one of these"
            conflicts(type(self).__name__, [("value", self.value, rule)])
        return self


class Count(_Counted):
    """A number of one declared architecture."""

    relation: Literal["count"] = Field(alias="is")
    """count."""


class Ratio(_Counted):
    """A number over another one."""

    relation: Literal["ratio"] = Field(alias="is")
    """ratio."""
    to: Other
    """The number below the line."""


class Difference(_Counted):
    """A number less another one."""

    relation: Literal["difference"] = Field(alias="is")
    """difference."""
    less: Other
    """The number that is taken away."""


class Identity(_Calculated):
    """A property that holds, or does not, up to rounding in float64."""

    relation: Literal["identity"] = Field(alias="is")
    """identity."""
    property: Property
    """What is checked."""
    set: Patch = {}
    """Settings changed in the small network that it is checked on."""
    holds: bool
    """What the document says: that it holds, or that it does not."""


class Worked(_Calculated):
    """Numbers of the attention example worked by hand: 3 tokens, width 4, 2 heads."""

    relation: Literal["worked"] = Field(alias="is")
    """worked."""
    step: Step
    """Where in the example."""
    head: Literal[1, 2] | None = None
    """One head's share; by default the whole width."""
    token: Annotated[int, Field(ge=0, le=2)] | None = None
    """One token's row; by default all."""
    value: Numbers
    """The printed numbers."""
    tolerance: Annotated[float, Field(ge=0.0)] = 0.0
    """What their rounding leaves open on either side."""


Calculation = Annotated[Count | Ratio | Difference | Identity | Worked, Field(discriminator="relation")]
"""What calculation decides; the key `is` names the member."""


class CalculatedClaim(Declaration):
    """A statement that needs no run."""

    id: ClaimId
    """The claim's name; a further reading of the same statement adds a dot and a word."""
    document: str
    """The document's short name."""
    section: str
    """The section in it."""
    says: str
    """The statement under this reading, in one sentence."""
    expect: Calculation
    """What would make it true."""


class ClaimsFile(Declaration):
    """Statements on one subject."""

    subject: str
    """What they are about, in a few words."""
    claims: Annotated[list[CalculatedClaim], Field(min_length=1)]
    """The statements."""
