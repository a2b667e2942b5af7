"""Statements that calculation decides: counts of a declared architecture, and properties of the mathematics.

The invariant: what is expected is one member of a small closed union told apart by the key `is`; a number stands in
the file as the document prints it, with its unit and the rounding that it was printed with. No verdict is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from knockout.declare.base import Conflict, Declaration, Name, Positive, PositiveFloat, conflicts
from knockout.declare.claim import ClaimId
from knockout.declare.properties import Property
from knockout.declare.quantities import SHARES, Quantity, Unit, dimension, units_of

Patch = dict[str, Any]
"""Settings of the architecture to change, by name or dotted path; a mapping merges into its slot."""

Step = Literal["queries", "keys", "values", "keys_transposed", "products", "scores", "masked", "weights", "outputs"]
"""Steps of the example worked by hand: projections, one head's products before and after scaling, and what follows."""

Row = Annotated[list[float | None], Field(min_length=1)]
Numbers = Row | Annotated[list[Row], Field(min_length=1)]
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

    @property
    def units(self) -> tuple[Unit, ...]:
        """The units that the number can be printed in."""
        return units_of(self.quantities[0])

    @model_validator(mode="after")
    def _says_something(self) -> _Counted:
        conflicts(type(self).__name__, [*self._conflicts()])
        return self

    def _conflicts(self) -> Iterator[Conflict]:
        bounded = self.low is not None or self.high is not None
        if (self.value is None) != bounded:
            yield "value", self.value, "give either `value` with its tolerance, or `low` and `high`, or one of these"
        if self.low is not None and self.high is not None and self.low > self.high:
            yield "low", self.low, f"nothing is at least this and at most {self.high:g}"
        yield from _mixed("quantity", self.quantities)
        if self.unit not in self.units:
            yield "unit", self.unit, f"{' + '.join(self.quantities)} is printed in {', '.join(self.units)}"


def _mixed(path: str, quantities: Sequence[Quantity]) -> Iterator[Conflict]:
    found = list(dict.fromkeys(dimension(quantity) for quantity in quantities))
    if len(found) > 1:
        yield path, quantities[-1], f"{' and '.join(found)} cannot be added or taken from one another"


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

    @property
    def units(self) -> tuple[Unit, ...]:
        return SHARES


class Printed(Declaration):
    """A number as a document prints it."""

    value: PositiveFloat
    """The printed number, over 0."""
    unit: Unit = "one"
    """Its unit."""


class Share(_Counted):
    """A number over another one as the document prints that, rounded."""

    relation: Literal["share"] = Field(alias="is")
    """share."""
    of: Printed
    """The number below the line."""

    @property
    def units(self) -> tuple[Unit, ...]:
        return SHARES

    def _conflicts(self) -> Iterator[Conflict]:
        yield from super()._conflicts()
        if self.of.unit not in (allowed := units_of(self.quantities[0])):
            yield "of.unit", self.of.unit, f"{' + '.join(self.quantities)} is printed in {', '.join(allowed)}"


class Difference(_Counted):
    """A number less another one."""

    relation: Literal["difference"] = Field(alias="is")
    """difference."""
    less: Other
    """The number that is taken away."""

    def _conflicts(self) -> Iterator[Conflict]:
        yield from super()._conflicts()
        if self.less.quantity is not None:
            yield from _mixed("less.quantity", (*self.quantities[:1], self.less.quantity))


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

    @model_validator(mode="after")
    def _are_numbers_of_the_example(self) -> Worked:
        found: list[Conflict] = []
        if len({len(row) for row in self.value if isinstance(row, list)}) > 1:
            found.append(("value", self.value, "all rows of a matrix have as many numbers"))
        if self.token is not None and self.step == "keys_transposed":
            found.append(("token", self.token, "the rows of the transposed keys are units, and not tokens"))
        conflicts("Worked", found)
        return self


Calculation = Annotated[Count | Ratio | Share | Difference | Identity | Worked, Field(discriminator="relation")]
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
    documents: dict[str, str] = {}
    """The title of each document, by its short name."""
    claims: Annotated[list[CalculatedClaim], Field(min_length=1)]
    """The statements."""

    @model_validator(mode="after")
    def _of_titled_documents(self) -> ClaimsFile:
        untitled = [i for i, claim in enumerate(self.claims) if self.documents and claim.document not in self.documents]
        rule = f"is not under `documents` ({', '.join(self.documents)})"
        conflicts("ClaimsFile", [(f"claims.{i}.document", self.claims[i].document, rule) for i in untitled])
        return self
