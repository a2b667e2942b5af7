"""The verdict on a claim that calculation decides.

The invariant: outcome, computed value and detail all come from the same calculation; only `stated` and `says` are the
document's.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from knockout.declare.calculation import Numbers
from knockout.declare.claims_file import Kind, LoadedClaim
from knockout.declare.quantities import UNITS, Unit

Decided = Literal["supported", "refuted"]

Value = float | bool | Numbers
"""A number, a pair of bounds, whether a property holds, or a row or matrix of numbers."""


@dataclass(frozen=True)
class CalculatedVerdict:
    """What calculation says about one claim.

    Counts are in their base unit (1, bytes, FLOPs), shares as fractions; bounds are [low, high] with null for none;
    for a property, whether it holds. `stated_text` and `computed_text` are the same two for a reader.
    """

    id: str
    kind: Kind
    document: str
    section: str
    says: str
    verdict: Decided
    stated: Value | list[float | None]
    computed: Value
    stated_text: str
    computed_text: str
    detail: str

    def to_dict(self) -> dict[str, Any]:
        """Plain data; the two texts are left to tables."""
        return {key: value for key, value in asdict(self).items() if not key.endswith("_text")}


def verdict(
    loaded: LoadedClaim,
    *,
    agrees: bool,
    stated: Value | list[float | None],
    computed: Value,
    texts: tuple[str, str],
    detail: str,
) -> CalculatedVerdict:
    """The verdict on a claim; `texts` are the stated and the computed value for a reader."""
    claim = loaded.claim
    return CalculatedVerdict(
        id=claim.id,
        kind=loaded.kind,
        document=claim.document,
        section=claim.section,
        says=claim.says,
        verdict="supported" if agrees else "refuted",
        stated=stated,
        computed=computed,
        stated_text=texts[0],
        computed_text=texts[1],
        detail=detail,
    )


def plain(value: float, *, digits: int = 6) -> str:
    """A whole number in full with commas; any other to some significant digits."""
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.{digits}g}" if abs(value) < 10**digits else f"{value:,.0f}"


def in_unit(value: float, *, unit: Unit, digits: int = 6) -> str:
    """A value in base units, told in a unit: `115.964 B`, `66.4203 %`, `0.25`."""
    name = "" if unit == "one" else f" {unit}"
    return f"{plain(float(f'{value / UNITS[unit]:.12g}'), digits=digits)}{name}"
