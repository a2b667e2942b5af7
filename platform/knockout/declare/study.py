"""A study: one question, one YAML file. A baseline, variants of it, sizes, seeds and claims."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from knockout.declare.base import Conflict, Declaration, Name, Positive, Seed, conflicts
from knockout.declare.claim import BASELINE, Claim, Competence, Decide
from knockout.declare.limits import Limits
from knockout.declare.match import Match
from knockout.declare.parallelism import Parallelism
from knockout.declare.recipe import Recipe
from knockout.declare.tune import Tune

Patch = dict[str, Any]
"""Settings of the architecture and the recipe to change, by name or dotted path; a mapping merges into its slot."""

Values = Annotated[list[Any], Field(min_length=1)]
EACH_ONCE: dict[str, Any] = {"uniqueItems": True}
"""What an editor must know of a list that holds nothing twice."""
Seeds = Annotated[list[Seed], Field(min_length=1, json_schema_extra=EACH_ONCE)]
MOST_VARIANTS = 10_000
TRIAL_SEED = 1_000_000
"""Trials' seeds count from here, far from any judged one."""
CONTROL_SEED = 2_000_000
"""Controls' seeds count from here, far from any judged one and from those of trials."""


class Source(Declaration):
    """Where the question comes from."""

    document: str
    """The document's short name or title."""
    section: str
    """The section in it."""


class OneFactor(Declaration):
    """One variant for each value of each path, everything else as in the baseline."""

    mode: Literal["one-factor"]
    over: Annotated[dict[str, Values], Field(min_length=1)]
    """For each path, the values it takes."""


class Product(Declaration):
    """One variant for each combination of values."""

    mode: Literal["product"]
    over: Annotated[dict[str, Values], Field(min_length=1)]
    """For each path, the values it takes."""


class LeaveOneOut(Declaration):
    """The baseline has every part; each variant sets one path, or one group of paths, to its value without the part."""

    mode: Literal["leave-one-out"]
    over: Annotated[dict[str, Any], Field(min_length=1)]
    """For each path, the value that takes the part out."""
    groups: dict[Name, list[str]] = {}
    """Paths of `over` that are taken out together, under a name; a grouped path is not also taken out alone."""

    @model_validator(mode="after")
    def _groups_name_paths(self) -> LeaveOneOut:
        unknown = [(group, path) for group, paths in self.groups.items() for path in paths if path not in self.over]
        conflicts(
            "LeaveOneOut",
            [(f"groups.{group}", path, f"must be one of over's paths: {', '.join(self.over)}") for group, path in unknown],
        )
        return self


Vary = Annotated[OneFactor | Product | LeaveOneOut, Field(discriminator="mode")]


class Controls(Declaration):
    """Comparisons whose answer is known."""

    aa: bool = True
    """The baseline against itself, with as many fresh seeds as are judged: a difference is a false alarm."""
    shuffled: bool = False
    """The baseline on tokens in a random order, with one seed: it cannot get under the unigram floor."""


class Study(Declaration):
    """One question, and how it is to be answered."""

    study: Name
    """The study's name: its MLflow experiment and its report."""
    question: str
    """What the study asks, in one sentence."""
    source: Source | None = None
    """The document that makes the claims."""
    corpus: Name
    """A declaration in data/."""
    size: Name | None = None
    """The scale at which it runs, a declaration in ablations/sizes/. Either this or `sizes`."""
    sizes: Annotated[list[Name], Field(min_length=1, json_schema_extra=EACH_ONCE)] | None = None
    """Several scales."""
    preset: Name | None = None
    """An architecture in ablations/presets/ to start from; a size's dimensions go over it."""
    recipe: Name | None = None
    """A recipe in ablations/recipes/ to start from."""
    baseline: Patch = {}
    """What the baseline changes in the size's standard model and recipe."""
    at: dict[Name, Patch] = {}
    """What the baseline changes at one size only, such as a smaller token budget."""
    variants: dict[Name, Patch] = {}
    """Named patches on the baseline."""
    vary: Vary | None = None
    """Variants by rule, beside the named ones."""
    match: Match | Annotated[list[Match], Field(min_length=1)] | Literal["none"] = "none"
    """What is held equal between variants, by one rule or several; with none, the report says what differs."""
    tune: Tune | None = None
    """What is searched for every variant, with the same budget, before it is judged."""
    seeds: (
        Annotated[int, Field(ge=1, le=10_000)] | Annotated[list[Seed], Field(min_length=1, json_schema_extra=EACH_ONCE)]
    ) = 5
    """How many seeds, or which."""
    settle: Annotated[list[Positive], Field(min_length=1)] | None = None
    """How many seeds there are in all at each further look, which `run --settle` takes while a claim is open."""
    controls: Controls = Controls()
    """What is trained beside the question to see whether the study can be trusted."""
    decide: Decide = Decide()
    """How claims are decided."""
    competence: Competence = Competence()
    """How far under the corpus' floor the baseline must be before anything is concluded."""
    limits: Limits = Limits()
    """How long its runs, and all of it, may take in one command."""
    runtime: Parallelism = Parallelism()
    """How many devices each run takes. Bears no identity: results of other devices are reused."""
    claims: list[Claim] = []
    """Statements to decide."""

    @model_validator(mode="after")
    def _stands_together(self) -> Study:
        found: list[Conflict] = []
        if (self.size is None) == (self.sizes is None):
            found.append(("size", self.size, "give either `size` or `sizes`"))
        if BASELINE in self.variants:
            found.append((f"variants.{BASELINE}", BASELINE, "this is the baseline's own name, choose another"))
        ids = [claim.id for claim in self.claims]
        found += [
            (f"claims.{i}.id", name, "must differ from the other claims' ids")
            for i, name in enumerate(ids)
            if name in ids[:i]
        ]
        found += _written_twice("sizes", self.sizes)
        conflicts("Study", [*found, *self._match_conflicts(), *self._seed_conflicts()])
        return self

    def _match_conflicts(self) -> Iterator[Conflict]:
        taken: dict[str | None, int] = {}
        for index, rule in enumerate(self.matches):
            for name in rule.variants if rule.variants is not None else [None]:
                if taken.setdefault(name, index) != index:
                    who = f"'{name}' is" if name else "the variants that no rule names are"
                    yield f"match.{index}", name or rule.on, f"{who} matched by rule {taken[name]} already"

        moved = [path for path in self.tune.ranges if path.split(".")[0] not in Recipe.model_fields] if self.tune else []
        moved += [rule.free for rule in self.matches if self.tune and rule.free in self.tune.ranges]
        if self.matches and moved:
            rule = "would change what `match` holds equal: search settings of the recipe, or match nothing"
            yield from ((f"tune.{path}", path, rule) for path in dict.fromkeys(moved))

    def _seed_conflicts(self) -> Iterator[Conflict]:
        looks = self.looks
        if reserved := [seed for seed in self.seed_list if seed >= TRIAL_SEED]:
            yield "seeds", reserved[0], f"must be under {TRIAL_SEED:,}: seeds from there on are for trials and controls"
        if isinstance(self.seeds, list):
            yield from _written_twice("seeds", self.seeds)
        if self.settle is not None and looks[0] < 2:
            yield "settle", self.settle, "needs a first look of at least two seeds: one alone has no spread"
        if any(later <= sooner for sooner, later in itertools.pairwise(looks)):
            yield "settle", self.settle, f"must rise from more than the study's {looks[0]} seeds"

    @property
    def matches(self) -> tuple[Match, ...]:
        """The rules by which variants are matched."""
        return tuple(self.match) if isinstance(self.match, list) else (self.match,) if isinstance(self.match, Match) else ()

    def match_of(self, variant: str) -> Match | None:
        """The rule that a variant is matched by: the one that names it, or else the one that names none."""
        named = [rule for rule in self.matches if rule.variants is not None and variant in rule.variants]
        return next(iter([*named, *(rule for rule in self.matches if rule.variants is None)]), None)

    @property
    def looks(self) -> tuple[int, ...]:
        """How many seeds there are in all at each look, the first one first."""
        return (len(self.seed_list), *(self.settle or ()))

    @property
    def size_names(self) -> tuple[str, ...]:
        """The sizes that the study names, in its order."""
        return tuple(self.sizes) if self.sizes is not None else (str(self.size),)

    @property
    def seed_list(self) -> tuple[int, ...]:
        """The seeds of the judged runs."""
        return tuple(self.seeds) if isinstance(self.seeds, list) else tuple(range(self.seeds))

    def seeds_at(self, look: int) -> tuple[int, ...]:
        """The seeds of a look, counted from 0: the judged ones, then the smallest that are not among them."""
        first = self.seed_list
        further = (seed for seed in itertools.count() if seed not in first)
        return (*first, *itertools.islice(further, self.looks[look] - len(first)))


def _written_twice(path: str, values: Sequence[object] | None) -> Iterator[Conflict]:
    """Members of a list that stand in it already."""
    for index, value in enumerate(values or ()):
        if value in (values or ())[:index]:
            yield f"{path}.{index}", value, f"stands in {path} already: each counts once"
