"""A declared condition as a Polars expression, and which rows of a table meet it.

The invariant: JSON lines, Parquet and Arrow are filtered alike: numbers as 64-bit floats, text by code points, and neither a
null nor a NaN meets a condition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from knockout.declare.conditions import (
    Among,
    Both,
    Bound,
    Compared,
    Condition,
    Contains,
    Equals,
    Matches,
    NotNull,
    Opposite,
    asked_of_columns,
)

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, eq=False)
class Filter:
    """Which rows meet a condition."""

    columns: Mapping[str, Compared]
    """The columns that it asks of, and what each must hold."""
    mask: Callable[[Mapping[str, pl.Series]], np.ndarray]
    """From those columns [R] to which rows are kept, bool [R]."""


def make_filter(condition: Condition | None) -> Filter | None:
    """A filter of a declared condition."""
    if condition is None:
        return None
    asked = list(asked_of_columns(condition))
    columns: dict[str, Compared] = {part.column: part.compared for part in asked}
    columns |= {part.column: part.compared for part in asked if part.compared != "any"}

    def mask(table: Mapping[str, pl.Series]) -> np.ndarray:
        import polars as pl

        return pl.DataFrame(dict(table)).select(_expression(condition).alias("kept")).to_series().to_numpy()

    return Filter(columns, mask)


def asked(condition: Condition | None, *, column: str, compared: Compared) -> str:
    """Which value of a condition asks a column to be of a type, to be added to a message that it is not; else nothing."""
    parts = () if condition is None else asked_of_columns(condition)
    for part in parts:
        if part.column == column and part.compared == compared and not isinstance(part, NotNull):
            value = part.value[0] if isinstance(part, Among) else part.value
            is_quoted = isinstance(value, str) and re.fullmatch(r"[-+]?\d+(\.\d+)?", value.strip())
            said = f", since `where` compares it with {value!r}"
            return f"{said}: a number is written without quotes" if is_quoted else said
    return ""


def series_of(values: Sequence[Any], *, compared: Compared) -> pl.Series:
    """A column of plain values or an Arrow array, as conditions compare it; `any` keeps only whether there is a value."""
    import polars as pl

    match compared:
        case "text":
            return pl.Series(values, dtype=pl.String)
        case "number":
            return pl.Series(values, dtype=pl.Float64).fill_nan(None)
        case "boolean":
            return pl.Series(values, dtype=pl.Boolean)
        case "any":
            return pl.Series([None if value is None else True for value in values], dtype=pl.Boolean)


def _expression(condition: Condition) -> pl.Expr:
    import polars as pl

    match condition:
        case Equals(column=column, value=value):
            found = pl.col(column) == _literal(value)
        case Among(column=column, value=values):
            found = pl.col(column).is_in([_literal(value) for value in values])
        case Bound(column=column, relation="at_least", value=value):
            found = pl.col(column) >= _literal(value)
        case Bound(column=column, value=value):
            found = pl.col(column) <= _literal(value)
        case Contains(column=column, value=value):
            found = pl.col(column).str.contains(value, literal=True)
        case Matches(column=column, value=value):
            found = pl.col(column).str.contains(value)
        case NotNull(column=column):
            found = pl.col(column).is_not_null()
        case Both(relation=relation, of=parts):
            joined = (lambda a, b: a & b) if relation == "all" else (lambda a, b: a | b)
            found = reduce(joined, map(_expression, parts))
        case Opposite(of=part):
            found = ~_expression(part)
    return found.fill_null(False)


def _literal(value: bool | int | float | str) -> bool | float | str:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
