"""A study, expanded to plain data: every cell fully resolved, every run named. Pure: no disk, no clock, no randomness."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from knockout.declare.answerable import claims_made_twice, unknown_variants, unrecorded_metrics
from knockout.declare.claim import BASELINE
from knockout.declare.document import Document
from knockout.declare.idle import idle_variants, searched_settings
from knockout.declare.load import Loaded
from knockout.declare.match import Match
from knockout.declare.plan import Cell, Matched, Plan, PlannedRun, Resolved
from knockout.declare.problems import not_among
from knockout.declare.recipe import Recipe
from knockout.declare.settings import Settings, defaults
from knockout.declare.study import MOST_VARIANTS, LeaveOneOut, OneFactor, Product, Study
from knockout.declare.tune import as_declared
from knockout.errors import DeclarationError, InputError, Problem


class Solver(Protocol):
    """Solves a variant's free dimension; `make` gives the variant at a value of it."""

    def __call__(
        self, *, match: Match, baseline: Resolved, variant: Resolved, make: Callable[[int], Resolved]
    ) -> tuple[Matched, Resolved]:
        """What was matched, and the variant then. Raises InputError when nothing comes within the tolerance."""
        ...


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
        found += unknown_variants(study, document=loaded.document, known=list(patches))
        found += _unknown_matched(study, document=loaded.document, known=list(patches))
    cells: list[Cell] = []
    for size in loaded.sizes:
        at_size = _Size(loaded, size=size, solve=solve)
        of_baseline: set[tuple[str, int, int, str]] = set()
        for variant, patch in patches.items():
            try:
                cells.append(at_size.cell(variant, patch=patch))
            except DeclarationError as error:
                found += [problem for problem in error.problems if problem.place not in of_baseline]
                of_baseline |= {problem.place for problem in error.problems if variant == BASELINE}
    found += _in_vain(loaded, patches=patches, cells=cells)
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
        resolved = settings.resolve(of=f"{variant} at {self.size} in study {self.loaded.study.study}")
        self._check_ranges(settings, resolved=resolved)
        self._check_devices(variant, recipe=resolved[1])
        self._check_exam(variant, context=resolved[0].context)
        if variant == BASELINE:
            self.baseline = resolved
        match = self.loaded.study.match_of(variant)
        if match is None or variant == BASELINE or self.baseline is None:
            return Cell(variant, self.size, *resolved, patch.data)
        place = _place_of_match(self.loaded.study, rule=match)
        mark = self.loaded.document.mark(place)

        def make(value: int) -> Resolved:
            return settings.over(Document({match.free: value}, {(): mark})).resolve()

        try:
            matched, resolved = self.solve(match=match, baseline=self.baseline, variant=resolved, make=make)
        except InputError as error:
            path = ".".join(map(str, place))
            problem = Problem(mark.file, mark.line, mark.column, path, f"{variant} at {self.size}: {error}")
            raise DeclarationError([problem]) from None
        return Cell(variant, self.size, *resolved, patch.data, matched)

    def _check_devices(self, variant: str, *, recipe: Recipe) -> None:
        """Every device must get the same number of windows."""
        rule = self.loaded.study.runtime.undivided(recipe)
        if rule is not None:
            mark = self.loaded.document.mark(("runtime", "devices"))
            raise DeclarationError([Problem(mark.file, mark.line, mark.column, "runtime.devices", f"{rule}: {variant}")])

    def _check_exam(self, variant: str, *, context: int) -> None:
        """A window must fit into each segment of the corpus' exam."""
        corpus = self.loaded.corpus
        if corpus is not None and context > corpus.evaluation.segment_tokens:
            mark = self.loaded.document.mark(("corpus",))
            rule = f"{corpus.corpus}'s exam {corpus.evaluation.too_short_for(context)}: {variant} at {self.size}"
            raise DeclarationError([Problem(mark.file, mark.line, mark.column, "corpus", rule)])

    def _check_ranges(self, settings: Settings, *, resolved: Resolved) -> None:
        """Both ends of every tuned range must be legal settings of the variant."""
        tune = self.loaded.study.tune
        ends = {path: (range_.low, range_.high) for path, range_ in tune.ranges.items()} if tune is not None else {}
        now = {name: value for part in resolved for name, value in part.model_dump(mode="json").items()}
        for path, values in ends.items():
            mark = self.loaded.document.mark(("tune", path))
            for value in values:
                tried = as_declared({path: value}, settings=now)
                settings.over(Document(dict(tried), {(): mark})).resolve()


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


def _in_vain(loaded: Loaded, *, patches: Mapping[str, Document], cells: Sequence[Cell]) -> Iterator[Problem]:
    """Variants and claims that come to nothing, of those variants that can be built at every size."""
    study, document = loaded.study, loaded.document
    sizes = Counter(cell.variant for cell in cells)
    whole = [cell for cell in cells if sizes[cell.variant] == len(study.size_names)]
    yield from searched_settings(study, patches=patches)
    if loaded.overrides.size is None and not loaded.overrides.settings:
        yield from idle_variants(study, document=document, cells=whole)
    yield from claims_made_twice(study, document=document, cells=whole)
    yield from unrecorded_metrics(study, document=document, cells=whole)


def _place_of_match(study: Study, *, rule: Match) -> tuple[str | int, ...]:
    return ("match", study.match.index(rule)) if isinstance(study.match, list) else ("match",)


def _unknown_matched(study: Study, *, document: Document, known: list[str]) -> list[Problem]:
    found = []
    for rule in study.matches:
        for number, name in enumerate(rule.variants or ()):
            path = (*_place_of_match(study, rule=rule), "variants", number)
            others = [other for other in known if other != BASELINE]
            if name not in others:
                mark = document.mark(path)
                said = not_among(name, what="a variant that can be matched", allowed=others)
                found.append(Problem(mark.file, mark.line, mark.column, ".".join(map(str, path)), said))
    return found
