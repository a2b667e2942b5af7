"""Which rows of a table are read: a closed union of conditions on columns, told apart by the key `is`.

The invariant: a condition is true or false of a row and nothing else. A null meets none but the opposite (`not`) of one,
and the type of what is compared is the type that its column must have.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, field_validator, model_validator
from pydantic_core import PydanticCustomError, SchemaError, SchemaValidator, core_schema

from knockout.declare.base import Declaration, conflicts

EXACT = 2**53 - 1
"""Largest whole number that a 64-bit float tells from its neighbours: numbers are compared as such floats."""


def _exact(value: int | float) -> int | float:
    if abs(value) > EXACT:
        raise PydanticCustomError("number", "{rule}", {"rule": f"must be a number from -{EXACT:,} to {EXACT:,}"})
    return value


Number = Annotated[int | float, AfterValidator(_exact)]
Text = Annotated[str, StringConstraints(max_length=10_000)]
Compared = Literal["text", "number", "boolean", "any"]
"""What a column must hold for a condition on it to be asked."""
Column = Annotated[str, StringConstraints(min_length=1, max_length=1000)]


class _Condition(Declaration):
    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)


class _OfColumn(_Condition):
    """What is asked of one column."""

    column: Column
    """The column's name."""

    @property
    def compared(self) -> Compared:
        """What the column must hold."""
        return "text"


def _type_of(value: bool | int | float | str) -> Compared:
    if isinstance(value, bool):
        return "boolean"
    return "text" if isinstance(value, str) else "number"


class Equals(_OfColumn):
    """The column holds this value."""

    relation: Literal["equals"] = Field(alias="is")
    """equals."""
    value: bool | Number | Text
    """Text, a number or true/false; the column must have the same type."""

    @property
    def compared(self) -> Compared:
        return _type_of(self.value)


class Among(_OfColumn):
    """The column holds one of these values."""

    relation: Literal["in"] = Field(alias="is")
    """in."""
    value: Annotated[tuple[Number | Text, ...], Field(min_length=1, max_length=10_000)]
    """All text or all numbers."""

    @property
    def compared(self) -> Compared:
        return _type_of(self.value[0])

    @model_validator(mode="after")
    def _of_one_type(self) -> Among:
        if len({isinstance(value, str) for value in self.value}) > 1:
            conflicts("Among", [("value", list(self.value), "must be all text or all numbers")])
        return self


class Bound(_OfColumn):
    """The column holds this value, or more (at_least) or less (at_most); text is compared by code points."""

    relation: Literal["at_least", "at_most"] = Field(alias="is")
    """at_least or at_most."""
    value: Number | Text
    """Text or a number; the column must have the same type."""

    @property
    def compared(self) -> Compared:
        return _type_of(self.value)


class Contains(_OfColumn):
    """The column's text holds this text."""

    relation: Literal["contains"] = Field(alias="is")
    """contains."""
    value: Annotated[Text, StringConstraints(min_length=1)]
    """What is looked for, as it stands."""


class Matches(_OfColumn):
    """The column's text holds a match of a regular expression without back-references or look-around: its time is linear."""

    relation: Literal["matches"] = Field(alias="is")
    """matches."""
    value: Annotated[str, StringConstraints(min_length=1, max_length=1000)]
    """The expression in the syntax of Rust's regex crate; ^ and $ tie it to the ends."""

    @field_validator("value")
    @classmethod
    def _compiles(cls, value: str) -> str:
        try:
            SchemaValidator(core_schema.str_schema(pattern=value))
        except SchemaError as error:
            reason = " ".join(str(error).removeprefix('Error building "str" validator:').split())
            raise PydanticCustomError("expression", "{rule}", {"rule": f"is not a regular expression ({reason})"}) from None
        return value


class NotNull(_OfColumn):
    """The column holds something."""

    relation: Literal["not_null"] = Field(alias="is")
    """not_null."""

    @property
    def compared(self) -> Compared:
        return "any"


class Both(_Condition):
    """All (`all`) or at least one (`any`) of several conditions hold."""

    relation: Literal["all", "any"] = Field(alias="is")
    """all or any."""
    of: Annotated[tuple[Condition, ...], Field(min_length=1, max_length=1000)]
    """The conditions."""


class Opposite(_Condition):
    """A condition does not hold."""

    relation: Literal["not"] = Field(alias="is")
    """not."""
    of: Condition
    """The condition."""


OfColumn = Equals | Among | Bound | Contains | Matches | NotNull
Condition = Annotated[OfColumn | Both | Opposite, Field(discriminator="relation")]

Both.model_rebuild()
Opposite.model_rebuild()


def asked_of_columns(condition: Condition) -> Iterator[OfColumn]:
    """Every condition on one column that a condition is made of."""
    match condition:
        case Both(of=parts):
            for part in parts:
                yield from asked_of_columns(part)
        case Opposite(of=part):
            yield from asked_of_columns(part)
        case _:
            yield condition
