"""Bringing a variant to the baseline's size or cost by solving its free dimension in legal steps.

The invariant: the quantity grows with the free dimension, so the nearest legal value lies on one of the two sides of the
target; the error that remains is told, never rounded away.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from knockout.account.count import count
from knockout.declare.architecture import Architecture
from knockout.declare.expand import expand
from knockout.declare.load import Loaded
from knockout.declare.match import Match, Quantity
from knockout.declare.plan import Matched, Plan
from knockout.declare.recipe import Recipe
from knockout.errors import InputError

Resolved = tuple[Architecture, Recipe]
Make = Callable[[int], Resolved]
"""From a value of the free dimension to what the variant is then. Raises InputError for an illegal one."""

MAX_DOUBLINGS = 40
STEPS_TO_LEGAL = 64
"""How far a legal value is looked for: heads, for example, may divide only every so many widths."""


def solve(*, match: Match, baseline: Resolved, variant: Resolved, make: Make) -> tuple[Matched, Resolved]:
    """The variant at the legal value of the free dimension that brings it nearest to the baseline.

    Raises:
        InputError: no legal value comes within the tolerance; the message names the nearest ones.
    """
    target = quantity(baseline, on=match.on)
    step = step_of(variant, match=match)
    if (few := _try(make, 4 * step)) and (many := _try(make, 64 * step)) and _same(few, many, on=match.on):
        raise InputError(f"{match.free} does not change {match.on} in this variant: choose another free dimension")
    below, above = _around(target, on=match.on, step=step, make=make)
    candidates = [_nearest(below, step=-step, make=make), _nearest(above, step=step, make=make)]
    legal = [found for found in candidates if found is not None]
    if not legal:
        raise InputError(f"no value of {match.free} is legal in this variant: choose another free dimension")
    tried = sorted(legal, key=lambda found: abs(quantity(found[1], on=match.on) - target))
    value, resolved = tried[0]
    reached = quantity(resolved, on=match.on)
    matched = Matched(match.on, match.free, value, target, reached, reached / target - 1.0)
    if abs(matched.error) > match.tolerance:
        near = ", ".join(f"{match.free} {v} gives {quantity(r, on=match.on):,.0f}" for v, r in tried[:2])
        raise InputError(
            f"{match.on} cannot be matched within {match.tolerance:.2%}: the baseline has {target:,.0f}; {near}; "
            "choose another free dimension or a larger tolerance"
        )
    return matched, resolved


def quantity(resolved: Resolved, *, on: Quantity) -> float:
    """What a variant has of the matched quantity."""
    architecture, recipe = resolved
    account = count(architecture)
    parameters = account.parameters
    match on:
        case "parameters":
            return parameters.total
        case "non_embedding_parameters":
            return parameters.total - parameters.embedding - parameters.position - parameters.head
        case "active_parameters":
            return parameters.active
        case "flops_per_token":
            return account.flops_per_token.training
        case "compute":
            tokens = recipe.num_steps(context=architecture.context) * recipe.batch * architecture.context
            return tokens * account.flops_per_token.training


def step_of(resolved: Resolved, *, match: Match) -> int:
    """The distance between two values of the free dimension that are tried; a width's must be one that heads divide."""
    architecture, recipe = resolved
    match match.free, match.step:
        case "width", None:
            return math.lcm(8, 2 * architecture.heads)
        case "width", int(step):
            return math.lcm(step, architecture.heads)
        case "tokens", _:
            return recipe.batch * architecture.context
        case "ffn.hidden", step:
            return step or 8
        case _, step:
            return step or 1


def _around(target: float, *, on: Quantity, step: int, make: Make) -> tuple[int, int]:
    """The two neighbouring legal values between which the quantity passes the target."""
    low, high = 0, 1
    for _ in range(MAX_DOUBLINGS):
        if _value(high * step, on=on, step=step, make=make) >= target:
            break
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _value(middle * step, on=on, step=step, make=make) >= target else (middle, high)
    return max(low, 1) * step, high * step


def _same(few: tuple[int, Resolved], many: tuple[int, Resolved], *, on: Quantity) -> bool:
    return quantity(few[1], on=on) == quantity(many[1], on=on)


def _value(value: int, *, on: Quantity, step: int, make: Make) -> float:
    """The quantity at a value, or at the next legal one above it; without any it counts as too small."""
    found = _nearest(value, step=step, make=make)
    return quantity(found[1], on=on) if found is not None else -math.inf


def _nearest(value: int, *, step: int, make: Make) -> tuple[int, Resolved] | None:
    """The first legal value from this one on, in steps that may go down."""
    values = range(value, max(0, value + STEPS_TO_LEGAL * step), step)
    return next((found for place in values if (found := _try(make, place)) is not None), None)


def _try(make: Make, value: int) -> tuple[int, Resolved] | None:
    try:
        return value, make(value)
    except InputError:
        return None


def plan_study(loaded: Loaded) -> Plan:
    """A study expanded, its variants matched where it asks for it. Pure; raises DeclarationError with every problem."""
    return expand(loaded, solve=solve)
