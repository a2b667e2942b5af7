"""A study, expanded to plain data: every cell fully resolved, every run named. Pure: no disk, no clock, no randomness."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from knockout.declare.architecture import Architecture
from knockout.declare.claim import BASELINE
from knockout.declare.corpus import Corpus
from knockout.declare.document import Document
from knockout.declare.load import Loaded
from knockout.declare.match import Match
from knockout.declare.problems import not_among
from knockout.declare.recipe import Recipe
from knockout.declare.settings import Settings, defaults
from knockout.declare.study import MOST_VARIANTS, LeaveOneOut, OneFactor, Product, Study
from knockout.errors import DeclarationError, InputError, Problem

Resolved = tuple[Architecture, Recipe]


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


class Solver(Protocol):
    """Solves a variant's free dimension; `make` gives the variant at a value of it."""

    def __call__(
        self, *, match: Match, baseline: Resolved, variant: Resolved, make: Callable[[int], Resolved]
    ) -> tuple[Matched, Resolved]:
        """What was matched, and the variant then. Raises InputError when nothing comes within the tolerance."""
        ...


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

    def with_cells(self, cells: Mapping[tuple[str, str], Cell]) -> Plan:
        """The plan with other cells in the place of some, by variant and size."""

        def of(cell: Cell) -> Cell:
            return cells.get((cell.variant, cell.size), cell)

        return replace(
            self,
            cells=tuple(of(cell) for cell in self.cells),
            runs=tuple(replace(run, cell=of(run.cell)) for run in self.runs),
        )


def expand(loaded: Loaded, *, solve: Solver) -> Plan:
    """All cells and runs of a study: for each size the baseline and its variants, for each cell all seeds.

    `solve` matches variants where the study asks for it.

    Raises:
        DeclarationError: with every problem of every variant, at the line that made it.
    """
    study = loaded.study
    patches = variant_patches(study, document=loaded.document)
    found = [*loaded.problems, *_sizes_elsewhere(loaded)]
    if not any(problem.path.split(".")[0] in ("variants", "vary") for problem in found):
        found += _unknown_variants(study, document=loaded.document, known=list(patches))
    cells: list[Cell] = []
    for size in loaded.sizes:
        at_size = _Size(loaded, size=size, solve=solve)
        for variant, patch in patches.items():
            try:
                cells.append(at_size.cell(variant, patch=patch))
            except DeclarationError as error:
                found.extend(error.problems)
    if found or loaded.corpus is None:
        raise DeclarationError(
            sorted(dict.fromkeys(found), key=lambda problem: (problem.file, problem.line, problem.column))
        )
    runs = [PlannedRun(cell, seed) for seed in study.seed_list for cell in cells]
    return Plan(study, loaded.text, loaded.overrides.arguments, loaded.corpus, tuple(cells), tuple(runs))


class _Size:
    """The cells of one size, the baseline first."""

    def __init__(self, loaded: Loaded, *, size: str, solve: Solver) -> None:
        self.loaded = loaded
        self.size = size
        self.solve = solve
        self.baseline: Resolved | None = None

    def cell(self, variant: str, *, patch: Document) -> Cell:
        settings = _settings(self.loaded, size=self.size, patch=patch)
        resolved = settings.resolve()
        self._check_ranges(settings)
        if variant == BASELINE:
            self.baseline = resolved
        match = self.loaded.study.match
        if match == "none" or variant == BASELINE or self.baseline is None:
            return Cell(variant, self.size, *resolved, patch.data)
        mark = self.loaded.document.mark(("match",))

        def make(value: int) -> Resolved:
            return settings.over(Document({match.free: value}, {(): mark})).resolve()

        try:
            matched, resolved = self.solve(match=match, baseline=self.baseline, variant=resolved, make=make)
        except InputError as error:
            problem = Problem(mark.file, mark.line, mark.column, "match", f"{variant} at {self.size}: {error}")
            raise DeclarationError([problem]) from None
        return Cell(variant, self.size, *resolved, patch.data, matched)

    def _check_ranges(self, settings: Settings) -> None:
        """Both ends of every tuned range must be legal settings of the variant."""
        tune = self.loaded.study.tune
        ends = {path: (range_.low, range_.high) for path, range_ in tune.ranges.items()} if tune is not None else {}
        for path, values in ends.items():
            mark = self.loaded.document.mark(("tune", path))
            for value in values:
                settings.over(Document({path: value}, {(): mark})).resolve()


def plan_text(plan: Plan) -> str:
    """Every cell with every setting, as text whose difference shows what a change of defaults changes."""
    lines = [f"seeds: {list(plan.study.seed_list)}"]
    for cell in plan.cells:
        settings = cell.architecture.model_dump(mode="json") | cell.recipe.model_dump(mode="json")
        lines.append(f"{cell.variant} · {cell.size}")
        lines += [f"  {name}: {json.dumps(value)}" for name, value in settings.items()]
    return "\n".join(lines)


def variant_patches(study: Study, *, document: Document) -> dict[str, Document]:
    """The baseline's empty patch, then each variant's, named ones first.

    Raises:
        DeclarationError: two variants have one name, or there are too many.
    """
    patches = {BASELINE: Document({}, {})}
    for name in study.variants:
        patches[name] = document.at("variants").at(name)
    if study.vary is None:
        return patches
    mark = document.mark(("vary",))
    for number, (name, patch) in enumerate(_varied(study.vary)):
        rule = f"makes more than {MOST_VARIANTS:,} variants" if number >= MOST_VARIANTS else ""
        rule = f"makes a second variant named '{name}': rename the other one" if name in patches else rule
        if rule:
            raise DeclarationError([Problem(mark.file, mark.line, mark.column, "vary", rule)])
        patches[name] = Document(patch, {(): mark})
    return patches


def _settings(loaded: Loaded, *, size: str, patch: Document) -> Settings:
    settings = defaults()
    layers = (loaded.preset, loaded.recipe, loaded.sizes[size])
    for layer in layers:
        settings = settings.over(layer) if layer is not None else settings
    if loaded.study.baseline:
        settings = settings.over(loaded.document.at("baseline"))
    if size in loaded.study.at:
        settings = settings.over(loaded.document.at("at").at(size))
    settings = settings.over(loaded.overrides.patch)
    return settings.over(patch)


def _varied(vary: OneFactor | Product | LeaveOneOut) -> Iterator[tuple[str, dict[str, Any]]]:
    match vary:
        case OneFactor(over=over):
            for path, values in over.items():
                yield from ((_label(path, value), {path: value}) for value in values)
        case Product(over=over):
            for values in itertools.product(*over.values()):
                chosen = dict(zip(over, values, strict=True))
                yield "+".join(_label(path, value) for path, value in chosen.items()), chosen
        case LeaveOneOut(over=over, groups=groups):
            grouped = {path for paths in groups.values() for path in paths}
            yield from ((f"no-{group}", {path: over[path] for path in paths}) for group, paths in groups.items())
            yield from ((f"no-{_short(path)}", {path: value}) for path, value in over.items() if path not in grouped)


def _label(path: str, value: Any) -> str:
    shown = value.get("kind", "patch") if isinstance(value, dict) else value
    return f"{_short(path)}-{str(shown).lower()}"


def _short(path: str) -> str:
    return path.removesuffix(".kind").replace("_", "-")


def _sizes_elsewhere(loaded: Loaded) -> list[Problem]:
    """What is wrong under `at` for sizes that the study does not run at now: no such size, or no such setting."""
    study, document, found = loaded.study, loaded.document, []
    for size in study.at:
        mark = document.mark(("at", size))
        if size not in loaded.known_sizes:
            rule = not_among(size, what="a size", allowed=loaded.known_sizes)
            found.append(Problem(mark.file, mark.line, mark.column, f"at.{size}", rule))
        elif size not in study.size_names:
            found += Settings().over(document.at("at").at(size)).unknown
    return found


def _unknown_variants(study: Study, *, document: Document, known: list[str]) -> list[Problem]:
    found = []
    for index, claim in enumerate(study.claims):
        for field in ("variant", "than"):
            name = getattr(claim.expect, field, None)
            if name is not None and name not in known:
                path = ("claims", index, "expect", field)
                mark = document.mark(path)
                rule = not_among(name, what="a variant of this study", allowed=known)
                found.append(Problem(mark.file, mark.line, mark.column, ".".join(map(str, path)), rule))
    return found
