"""What a study comes to: cells with nothing left to resolve, and every run by name. Plain data."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from knockout.declare.architecture import Architecture
from knockout.declare.claim import BASELINE
from knockout.declare.corpus import Corpus
from knockout.declare.recipe import Recipe
from knockout.declare.study import CONTROL_SEED, Study

Resolved = tuple[Architecture, Recipe]

AGAIN = "baseline again"
SHUFFLED = "baseline on shuffled tokens"
"""The controls' names; no variant can be called so."""


@dataclass(frozen=True)
class Matched:
    """How a variant was brought to the baseline's value of a quantity, and what difference remains."""

    on: str
    free: str
    solution: int
    """The free dimension's value."""
    target: float
    """What the baseline has."""
    reached: float
    error: float
    """reached / target - 1."""


@dataclass(frozen=True)
class Cell:
    """A variant at a size, with nothing left to resolve."""

    variant: str
    size: str
    architecture: Architecture
    recipe: Recipe
    patch: dict[str, Any]
    matched: Matched | None = None

    @property
    def changes(self) -> dict[str, Any]:
        """What differs from the baseline: the patch, and what matching solved."""
        return self.patch if self.matched is None else {**self.patch, self.matched.free: self.matched.solution}

    @property
    def num_steps(self) -> int:
        """Optimizer steps that a run of this cell takes."""
        return self.recipe.num_steps(context=self.architecture.context)


@dataclass(frozen=True)
class PlannedRun:
    """One training of one cell with one seed."""

    cell: Cell
    seed: int
    role: str = "judged"
    trial: int | None = None
    """The number of the trial, in a search."""

    @property
    def name(self) -> str:
        """How people see the run: `no-residual · nano · s3`, or `no-residual · nano · trial 2`."""
        which = f"s{self.seed}" if self.trial is None else f"trial {self.trial}"
        return f"{self.cell.variant} · {self.cell.size} · {which}"


@dataclass(frozen=True)
class Plan:
    """Everything that a study asks for."""

    study: Study
    text: str
    arguments: str
    """What the command line changes in the text, as its arguments."""
    corpus: Corpus
    cells: tuple[Cell, ...]
    runs: tuple[PlannedRun, ...]
    """The judged ones."""
    look: int = 0
    """How often the study has been looked at before."""

    @property
    def controls(self) -> tuple[PlannedRun, ...]:
        """The runs whose answer is known: of each size's baseline as it is now, tuned or not."""
        baselines = [cell for cell in self.cells if cell.variant == BASELINE]
        return tuple(run for cell in baselines for run in _controls(self.study, baseline=cell))

    def at_look(self, look: int, *, variants: Collection[str]) -> Plan:
        """The plan with the seeds of a later look for some variants."""
        seeds = self.study.seeds_at(look)[self.study.looks[look - 1] :]
        more = [PlannedRun(cell, seed) for seed in seeds for cell in self.cells if cell.variant in variants]
        return replace(self, runs=(*self.runs, *more), look=look)

    def with_cells(self, cells: Mapping[tuple[str, str], Cell]) -> Plan:
        """The plan with other cells in the place of some, by variant and size."""

        def of(cell: Cell) -> Cell:
            return cells.get((cell.variant, cell.size), cell)

        return replace(
            self,
            cells=tuple(of(cell) for cell in self.cells),
            runs=tuple(replace(run, cell=of(run.cell)) for run in self.runs),
        )


def plan_text(plan: Plan) -> str:
    """Every cell with every setting, as text whose difference shows what a change of defaults changes."""
    lines = [f"seeds: {list(plan.study.seed_list)}"]
    for cell in plan.cells:
        settings = cell.architecture.model_dump(mode="json") | cell.recipe.model_dump(mode="json")
        lines.append(f"{cell.variant} · {cell.size}")
        lines += [f"  {name}: {json.dumps(value)}" for name, value in settings.items()]
    return "\n".join(lines)


def _controls(study: Study, *, baseline: Cell) -> list[PlannedRun]:
    """The runs of a size's controls; without a second seed there is no spread that one could be held against."""
    seeds = range(CONTROL_SEED, CONTROL_SEED + len(study.seed_list))
    again = replace(baseline, variant=AGAIN)
    runs = [PlannedRun(again, seed, role="control") for seed in seeds] if study.controls.aa and len(seeds) > 1 else []
    if study.controls.shuffled:
        recipe = baseline.recipe.model_copy(update={"shuffle_tokens": True})
        cell = replace(baseline, variant=SHUFFLED, recipe=recipe, patch={"shuffle_tokens": True})
        runs.append(PlannedRun(cell, CONTROL_SEED, role="control"))
    return runs
