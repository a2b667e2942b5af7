"""Claims that exact arithmetic on a declaration decides.

The invariant: numbers come from `account`, whole and unrounded; only the comparison knows how a document rounded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from knockout.account import count
from knockout.declare.architecture import Architecture
from knockout.declare.calculation import Count, Difference, Other, Patch, Ratio, Share
from knockout.declare.claims_file import LoadedClaim
from knockout.declare.quantities import UNITS, Quantity, Unit
from knockout.errors import InputError
from knockout.judge.calculation.calculated import CalculatedVerdict, in_unit, plain, verdict
from knockout.judge.calculation.quantities import AT_THE_CONTEXT, NAMES, composition, read

SLACK = 1e-12
"""Relative rounding of decimal numbers in float64, so that a figure on the edge of its tolerance is within it."""

Expected = Count | Ratio | Share | Difference


@dataclass(frozen=True)
class _Number:
    """A counted number, in base units, and the words that say what it is and how it comes about."""

    value: float
    words: str


@dataclass(frozen=True)
class _Bounds:
    """Between what a number must lie to agree, in base units."""

    low: float
    high: float

    def side(self, value: float) -> str:
        """`within`, `under` or `over`."""
        if value < self.low - SLACK * _size(self.low):
            return "under"
        return "over" if value > self.high + SLACK * _size(self.high) else "within"


def decide_count(loaded: LoadedClaim) -> CalculatedVerdict:
    """The verdict on a count, a ratio, a share or a difference.

    Raises:
        InputError: a ratio's number below the line is 0.
        TypeError: the claim is of another kind.
    """
    expect = loaded.claim.expect
    if not isinstance(expect, Expected):
        raise TypeError(f"claim {loaded.claim.id}: '{expect.relation}' is not decided by counting")
    found = _found(loaded, expect)
    bounds = _bounds(expect)
    ends = [_clean(end) if math.isfinite(end) else None for end in (bounds.low, bounds.high)]
    return verdict(
        loaded,
        agrees=bounds.side(found.value) == "within",
        stated=ends if expect.value is None else _clean(expect.value * UNITS[expect.unit]),
        computed=_clean(found.value),
        texts=(_stated(expect), in_unit(found.value, unit=expect.unit)),
        detail=f"{found.words}; {_compared(found.value, expect, bounds=bounds)}",
    )


def _found(loaded: LoadedClaim, expect: Expected) -> _Number:
    of = _described(expect.preset, expect.set)
    first = _sum(loaded.architectures[0], quantities=expect.quantities, context=expect.context, of=of)
    match expect:
        case Count():
            return first
        case Difference(less=other):
            second = _other(expect, other, loaded.architectures[1])
            return _Number(first.value - second.value, f"{first.words}; less {second.words}")
        case Share(of=printed):
            words = f"{first.words}; over {plain(printed.value)}{_unit(printed.unit)} as printed"
            return _Number(first.value / (printed.value * UNITS[printed.unit]), words)
        case Ratio(to=other):
            second = _other(expect, other, loaded.architectures[1])
            if not second.value:
                raise InputError(f"claim {loaded.claim.id}: the number below the line is 0 ({second.words})")
            return _Number(first.value / second.value, f"{first.words}; over {second.words}")


def _other(expect: Expected, other: Other, architecture: Architecture) -> _Number:
    of = _described(other.preset or expect.preset, expect.set if other.set is None else other.set)
    chosen = expect.quantities if other.quantity is None else (other.quantity,)
    return _sum(architecture, quantities=chosen, context=expect.context, of=of)


def _sum(architecture: Architecture, *, quantities: Sequence[Quantity], context: int | None, of: str) -> _Number:
    account = count(architecture, context=context)
    values = [read(account, architecture=architecture, quantity=quantity) for quantity in quantities]
    total = sum(values)
    made = composition(account, quantity=quantities[0], total=total) if len(values) == 1 else _terms(values)
    at = f" at {context or architecture.context:,} tokens" if quantities[0] in AT_THE_CONTEXT else ""
    return _Number(total, f"{' + '.join(NAMES[quantity] for quantity in quantities)} of {of}{at}: {total:,}{made}")


def _terms(values: Sequence[int]) -> str:
    return f" = {' + '.join(f'{value:,}' for value in values)}"


def _bounds(expect: Expected) -> _Bounds:
    unit = UNITS[expect.unit]
    if expect.value is not None:
        return _Bounds((expect.value - expect.tolerance) * unit, (expect.value + expect.tolerance) * unit)
    low = -math.inf if expect.low is None else expect.low * unit
    return _Bounds(low, math.inf if expect.high is None else expect.high * unit)


def _stated(expect: Expected) -> str:
    def told(value: float) -> str:
        return in_unit(value * UNITS[expect.unit], unit=expect.unit, digits=12)

    match expect.value, expect.low, expect.high:
        case float(value), _, _:
            decimals = _decimals(expect.tolerance)
            return f"{value:,.{decimals}f}{_unit(expect.unit)}" if decimals else told(value)
        case _, float(low), float(high):
            return f"{told(low)} to {told(high)}"
        case _, float(low), _:
            return f"at least {told(low)}"
        case _, _, high:
            return f"at most {told(high or 0.0)}"


def _compared(found: float, expect: Expected, *, bounds: _Bounds) -> str:
    """How the counted number stands to the printed one, in words."""
    side, stated = bounds.side(found), _stated(expect)
    if expect.value is None:
        return f"{in_unit(found, unit=expect.unit)} is {side} the stated bounds ({stated})"
    unit = UNITS[expect.unit]
    off = _clean(expect.value * unit - found)
    if side == "within":
        return "exactly the stated number" if off == 0 else f"the stated {stated} is right to ± {plain(expect.tolerance)}"
    if found and (power := _slipped(expect.value * unit / found)):
        return (
            f"the stated {stated} is {10 ** abs(power):,} times too {'large' if power > 0 else 'small'}: a unit has slipped"
        )
    share = f" ({_percent(abs(off / found))})" if found and expect.value else ""
    said = f"the stated {stated} is {in_unit(abs(off), unit=expect.unit)}{share} too {'high' if off > 0 else 'low'}"
    rounded = f"{found / unit:,.{_decimals(expect.tolerance)}f}{_unit(expect.unit)}"
    return f"{said}; to as many digits it is {rounded}" if expect.tolerance else said


def _decimals(tolerance: float) -> int:
    """Decimals of a printed number whose rounding leaves this open: half a unit of the last one, or a whole unit."""
    return max(0, math.ceil(-math.log10(2 * tolerance) - 1e-9)) if tolerance else 0


def _slipped(ratio: float) -> int:
    """The power of ten that a ratio is, to three digits; 0 when it is none."""
    power = round(math.log10(ratio)) if ratio > 0 else 0
    return power if abs(ratio / 10**power - 1) < 1e-3 else 0


def _unit(unit: Unit) -> str:
    return "" if unit == "one" else f" {unit}"


def _percent(share: float) -> str:
    """To two digits, or whole from 100 % on."""
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:,.0f} %"


def _described(preset: str, patch: Patch) -> str:
    return f"{preset} with {', '.join(f'{key} {_told(value)}' for key, value in patch.items())}" if patch else preset


def _told(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(_told(inner) if name == "kind" else f"{name} {_told(inner)}" for name, inner in value.items())
    return str(value).lower() if isinstance(value, bool) else str(value)


def _size(bound: float) -> float:
    return abs(bound) if math.isfinite(bound) else 0.0


def _clean(value: float) -> float:
    """Whole numbers as integers, others without float64's last digits."""
    rounded = float(f"{value:.12g}")
    return int(value) if float(value).is_integer() else int(rounded) if rounded.is_integer() else rounded
