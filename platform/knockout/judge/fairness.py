"""What in a study may favour one of its variants, in sentences.

The invariant: only the plan and what its searches chose are looked at, never a result, so that what is said before training
still holds after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from knockout.account import count
from knockout.declare.claim import BASELINE
from knockout.declare.plan import Cell, Plan
from knockout.judge.flag import Flag
from knockout.judge.foreseen import foreseen
from knockout.judge.noise import compared_in
from knockout.ledger.identity import difference

OPTIMISATION = ("learning_rate", "warmup_steps", "schedule", "optimizer", "clip", "batch", "tokens")
"""Settings of the recipe on which depends how well anything is trained."""
UNEQUAL = 0.01
"""A larger relative difference is told."""
COMPUTE = ("compute", "flops_per_token")
"""Quantities that, matched, answer for the budget; the others answer for the size of the model."""


def fairness(plan: Plan, *, tuned: Sequence[Mapping[str, Any]] = ()) -> list[Flag]:
    """Everything that the plan, and the searches that are over, give reason to tell; the serious flags first.

    `tuned` holds, for each cell that was searched, variant, size and edges (path -> low or high).
    """
    baselines = {cell.size: cell for cell in plan.cells if cell.variant == BASELINE}
    several = len(baselines) > 1
    flags = [flag for search in tuned for flag in _edges(search, several=several)]
    for cell in plan.cells:
        if cell.variant != BASELINE:
            name = f"{cell.variant} at {cell.size}" if several else cell.variant
            flags += [*_handicap(cell, baselines[cell.size], plan=plan, name=name)]
    for cell, than in compared_cells(plan):
        flags += [*_unequal(cell, than, plan=plan, name=f"{cell.variant} at {cell.size}" if several else cell.variant)]
    flags += [*_untuned(plan), *foreseen(plan)]
    return sorted(flags, key=lambda flag: flag.level != "serious")


def _tunes(plan: Plan) -> frozenset[str]:
    return frozenset(plan.study.tune.ranges) if plan.study.tune is not None else frozenset()


def _handicap(cell: Cell, baseline: Cell, *, plan: Plan, name: str) -> Iterator[Flag]:
    """A variant that is trained otherwise than the baseline, where no search makes up for it."""
    tuned = _tunes(plan)
    if "learning_rate" in tuned:
        return
    solved = {cell.matched.free} if cell.matched is not None else set()
    changed = difference(_plain(baseline), _plain(cell))
    how = {path: values for path, values in changed.items() if path.split(".")[0] in OPTIMISATION}
    how = {path: values for path, values in how.items() if path not in tuned | solved}
    if not how:
        return
    replaced = {path.removesuffix("kind") for path in how if path.endswith(".kind")}
    told = {path: values for path, values in how.items() if path.endswith(".kind") or not path.startswith(tuple(replaced))}
    sets = ", ".join(f"{path} to {_show(new)} (baseline: {_show(old)})" for path, (old, new) in told.items())
    if changed.keys() - solved <= how.keys():
        yield Flag("handicap", "note", cell.variant, cell.size, f"{name} changes only how it is trained: it sets {sets}")
        return
    rest = "its verdicts may say more about how it is trained than about what it is"
    said = f"{name} sets {sets} beside what it changes in the model, and learning_rate is not tuned: {rest}"
    yield Flag("handicap", "serious", cell.variant, cell.size, said)


def _untuned(plan: Plan) -> Iterator[Flag]:
    if "learning_rate" in _tunes(plan) or len({cell.variant for cell in plan.cells}) < 2:
        return
    rates = {cell.size: cell.recipe.learning_rate for cell in plan.cells if cell.variant == BASELINE}
    own = dict.fromkeys(cell.variant for cell in plan.cells if cell.recipe.learning_rate != rates[cell.size])
    but = f" but {', '.join(own)}" if own else ""
    said = f"learning_rate is not tuned: every variant{but} uses the baseline's, which may suit some better than others"
    yield Flag("untuned", "note", None, None, said)


def _edges(search: Mapping[str, Any], *, several: bool) -> Iterator[Flag]:
    name = f"{search['variant']} at {search['size']}" if several else search["variant"]
    for path, end in search["edges"].items():
        said = f"the best {path} of {name} is at the {end} end of what was searched: a better one may lie beyond"
        yield Flag("edge", "serious", search["variant"], search["size"], said)


def _unequal(cell: Cell, than: Cell, *, plan: Plan, name: str) -> Iterator[Flag]:
    """What differs between two cells that are compared, and is not held equal by a rule."""
    rule = plan.study.match_of(cell.variant) if than.variant == BASELINE else None
    parameters, budget = _parameters(cell) / _parameters(than), _flops(cell) / _flops(than)
    size_differs = abs(parameters - 1.0) > UNEQUAL and (rule is None or rule.on in COMPUTE)
    budget_differs = abs(budget - 1.0) > UNEQUAL and (rule is None or rule.on not in COMPUTE)
    told = [f"has {parameters:.3g} times the parameters"] if size_differs else []
    told += [f"is trained with {budget:.3g} times the FLOPs"] if budget_differs else []
    if told:
        yield Flag("unequal", "note", cell.variant, cell.size, f"{name} {' and '.join(told)} of {than.variant}")


def compared_cells(plan: Plan) -> Iterator[tuple[Cell, Cell]]:
    """The cells that claims compare, each with the other one; a variant that no claim names, with the baseline."""
    pairs = dict.fromkeys((a, b) for a, b, _ in compared_in(plan.study.claims, metric=plan.study.decide.metric))
    named = {name for pair in pairs for name in pair} | {BASELINE}
    others = dict.fromkeys(cell.variant for cell in plan.cells if cell.variant not in named)
    cells = {(cell.variant, cell.size): cell for cell in plan.cells}
    for variant, than in (*pairs, *((variant, BASELINE) for variant in others)):
        for size in dict.fromkeys(cell.size for cell in plan.cells):
            yield cells[variant, size], cells[than, size]


def _plain(cell: Cell) -> dict[str, Any]:
    return cell.architecture.model_dump(mode="json") | cell.recipe.model_dump(mode="json")


def _flops(cell: Cell) -> int:
    tokens = cell.num_steps * cell.recipe.batch * cell.architecture.context
    return tokens * count(cell.architecture).flops_per_token.training


def _parameters(cell: Cell) -> int:
    return count(cell.architecture).parameters.total


def _show(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else "nothing" if value is None else str(value)
