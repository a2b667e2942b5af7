"""Claims that are decided on real tensors in float64: properties, and an example worked by hand.

The invariant: whether a property holds is measured by `model/properties/`; here it meets what the document says.
Importing this imports torch.
"""

from __future__ import annotations

import math

from torch import Tensor

from knockout.declare.calculation import Identity, Numbers, Worked
from knockout.declare.claims_file import LoadedClaim
from knockout.judge.calculation.calculated import CalculatedVerdict, verdict
from knockout.model.properties import check
from knockout.model.properties.worked import MADE_FROM, worked_step


def decide_identity(loaded: LoadedClaim) -> CalculatedVerdict:
    """The verdict on a property or a worked number.

    Raises TypeError for a claim of another kind.
    """
    expect = loaded.claim.expect
    match expect:
        case Identity():
            return _decide_property(loaded, expect)
        case Worked():
            return _decide_worked(loaded, expect)
        case _:
            raise TypeError(f"claim {loaded.claim.id}: '{expect.relation}' is not decided on tensors")


def _decide_property(loaded: LoadedClaim, expect: Identity) -> CalculatedVerdict:
    (architecture,) = loaded.architectures
    found = check(expect.property, architecture=architecture)
    texts = _holds(expect.holds), _holds(found.holds)
    agrees = found.holds == expect.holds
    return verdict(loaded, agrees=agrees, stated=expect.holds, computed=found.holds, texts=texts, detail=found.detail)


def _decide_worked(loaded: LoadedClaim, expect: Worked) -> CalculatedVerdict:
    found = _rows(worked_step(expect.step, head=expect.head), token=expect.token)
    agrees, off = _compare(found, expect.value, tolerance=expect.tolerance)
    texts = _text(expect.value), _text(found)
    if _shape(found) != _shape(expect.value):
        compared = f"of shape {_shape(found)}; the document prints shape {_shape(expect.value)}"
    else:
        compared = "as printed" if agrees else f"from which the printed numbers are off by up to {off:.2g}"
    detail = f"{_made(expect)}: {texts[1]}, {compared}"
    return verdict(loaded, agrees=agrees, stated=expect.value, computed=found, texts=texts, detail=detail)


def _made(expect: Worked) -> str:
    """What the numbers are, and for a later step from which numbers they are made."""
    what = f"{expect.step.replace('_', ' ')} of head {expect.head}" if expect.head else expect.step
    if expect.step not in MADE_FROM:
        return what
    how, before = MADE_FROM[expect.step]
    return f"{what}, {_text(_rows(worked_step(before, head=expect.head), token=expect.token))} {how}"


def _rows(found: Tensor, *, token: int | None) -> Numbers:
    """A row, or a matrix by rows, with null for minus infinity."""
    rows = [[None if math.isinf(value) else round(value, 12) for value in row] for row in found.tolist()]
    return rows if token is None else rows[token]


def _compare(found: Numbers, stated: Numbers, *, tolerance: float) -> tuple[bool, float]:
    """Whether all numbers agree within the tolerance, and the largest difference."""
    ours, theirs = _flat(found), _flat(stated)
    if _shape(found) != _shape(stated) or [x is None for x in ours] != [x is None for x in theirs]:
        return False, math.inf
    gaps = [abs(a - b) for a, b in zip(ours, theirs, strict=True) if a is not None and b is not None]
    return max(gaps) <= tolerance + 1e-12, max(gaps)


def _flat(numbers: Numbers) -> list[float | None]:
    return [value for row in numbers for value in (row if isinstance(row, list) else [row])]


def _shape(numbers: Numbers) -> str:
    first = numbers[0]
    return f"{len(numbers)} × {len(first)}" if isinstance(first, list) else str(len(numbers))


def _text(numbers: Numbers) -> str:
    rows = [row for row in numbers if isinstance(row, list)] or [numbers]
    told = [f"[{', '.join('−∞' if value is None else f'{value:.4g}' for value in row)}]" for row in rows]
    return told[0] if len(told) == 1 else f"[{', '.join(told)}]"


def _holds(holds: bool) -> str:
    return "holds" if holds else "does not hold"
