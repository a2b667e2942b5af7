"""What is searched for every variant before it is judged: the same ranges, the same number of trials, the same pruning.

Beside `trials`, `seeds`, `sampler`, `pruner` and `extend`, every key is the path of a numeric setting with the range it is
searched in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from knockout.declare.base import Conflict, Declaration, Positive, conflicts

STEPS = ("tokens", "batch", "context", "evaluations")
"""Settings on which depends at which steps a run is evaluated."""
Share = Annotated[float, Field(ge=0.0, lt=1.0)]


class Range(Declaration):
    """An interval of a numeric setting; a setting that is a whole number takes the nearest one."""

    low: float
    """Smallest value."""
    high: float
    """Largest value, over low."""
    log: bool = True
    """Search the logarithm, as suits a learning rate; low is over 0 then."""

    @model_validator(mode="after")
    def _stands_together(self) -> Range:
        found: list[Conflict] = []
        if self.low >= self.high:
            found.append(("high", self.high, f"must be over low = {self.low}"))
        if self.log and self.low <= 0.0:
            found.append(("low", self.low, "must be over 0 where the logarithm is searched; or set log: false"))
        conflicts("Range", found)
        return self


class Tpe(Declaration):
    """Tree-structured Parzen estimator (Bergstra et al. 2011), independent for each setting."""

    kind: Literal["tpe"] = "tpe"
    startup: Positive = 3
    """Random trials before the estimator takes over."""


class Gp(Declaration):
    """Gaussian process with a Matérn kernel and the logarithm of the expected improvement (Ament et al. 2023)."""

    kind: Literal["gp"] = "gp"
    startup: Positive = 3
    """Random trials before the process takes over."""


class Random(Declaration):
    """Independent draws."""

    kind: Literal["random"] = "random"


class Grid(Declaration):
    """`trials` values spread evenly over one range, both ends included, from the middle outwards; one setting only."""

    kind: Literal["grid"] = "grid"


Sampler = Annotated[Tpe | Gp | Random | Grid, Field(discriminator="kind")]


class NoPruner(Declaration):
    """Every trial runs to its end."""

    kind: Literal["none"] = "none"


class SlackPruner(Declaration):
    """Ends a trial that lags behind the best finished one by more than can still be made up.

    Its best loss so far may be over the best finished trial's at the same step by `slack` at the step `after`, and by less
    and less after it, down to nothing at the last: curves of different learning rates cross while the rate decays.
    Source: the slack of Sparks et al., "Automating model search for large scale machine learning" (SoCC 2015), bandit
    allocation; here a difference, not a ratio, that shrinks linearly.
    """

    kind: Literal["slack"] = "slack"
    startup: Positive = 1
    """Trials that must have finished before any is ended."""
    after: Share = 0.25
    """Share of a run's steps before which nothing is ended, in [0, 1)."""
    slack: Annotated[float, Field(ge=0.0)] = 0.3
    """What a trial may lag behind at `after`, in nats per token, 0 or more."""


class MedianPruner(Declaration):
    """Ends a trial whose best loss so far is over the median of the finished trials' at the same step.

    Source: Golovin et al., "Google Vizier" (KDD 2017), section 3.2.2, with the loss at the step in the place of its
    running average.
    """

    kind: Literal["median"] = "median"
    startup: Positive = 2
    """Trials that must have finished before any is ended."""
    after: Share = 0.375
    """Share of a run's steps before which nothing is ended, in [0, 1)."""


class HyperbandPruner(Declaration):
    """Ends a trial that is not among the best 1 / reduction at a rung, in several brackets with rungs of their own.

    Source: Li et al., "Hyperband" (JMLR 18, 2018), algorithm 1, as successive halving without waiting for a rung to fill.
    """

    kind: Literal["hyperband"] = "hyperband"
    reduction: Annotated[int, Field(ge=2, le=100)] = 3
    """Each rung is so many times as far as the one before, and 1 of so many passes it; 2 or more."""
    after: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.125
    """Share of a run's steps at which the first rung of the first bracket lies, in (0, 1)."""


Pruner = Annotated[NoPruner | SlackPruner | MedianPruner | HyperbandPruner, Field(discriminator="kind")]


class Tune(Declaration):
    """The search of each cell. Tuning seeds are apart from the judged ones."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Range]  # type: ignore[reportIncompatibleVariableOverride]  # pydantic's way to type extras

    trials: Annotated[int, Field(ge=2, le=10_000)] = 7
    """Trials for each cell, at least 2; the same for every variant. An odd number has one in the middle of a grid."""
    seeds: Positive = 1
    """Seeds that each trial is the mean of."""
    sampler: Sampler = Grid()
    """How trials are proposed."""
    pruner: Pruner = SlackPruner()
    """When a trial is ended early, by its evaluations; with several seeds the first one's decide."""
    extend: Annotated[int, Field(ge=0, le=100)] = 2
    """Further trials, each a step beyond the end at which the best lies, for each setting; 0: none."""

    @model_validator(mode="after")
    def _stands_together(self) -> Tune:
        found: list[Conflict] = []
        if not self.ranges:
            found.append(
                ("trials", self.trials, "there is nothing to tune: give a range, as learning_rate: {low: 1e-4, high: 1e-2}")
            )
        if "vocabulary" in self.ranges:
            rule = "it decides what the tokens are, and losses over different tokens have no best; make variants of it"
            found.append(("vocabulary", "searched", rule))
        if isinstance(self.sampler, Grid) and len(self.ranges) > 1:
            found.append(("sampler.kind", "grid", "a grid is over one setting; use tpe, gp or random for several"))
        if not isinstance(self.pruner, NoPruner) and (moved := [path for path in STEPS if path in self.ranges]):
            rule = (
                f"trials that differ in {', '.join(moved)} are not evaluated at the same steps; set pruner: {{kind: none}}"
            )
            found.append(("pruner.kind", self.pruner.kind, rule))
        conflicts("Tune", found)
        return self

    @property
    def ranges(self) -> dict[str, Range]:
        """The searched settings by path."""
        return dict(self.__pydantic_extra__ or {})


def as_declared(values: Mapping[str, float], *, settings: Mapping[str, Any]) -> dict[str, float]:
    """The values of dotted paths, rounded where the setting, as it is now, is a whole number."""
    return {path: round(value) if _is_whole(_at(settings, path)) else value for path, value in values.items()}


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _at(settings: Mapping[str, Any], path: str) -> object:
    here: Any = settings
    for key in path.split("."):
        here = here.get(key) if isinstance(here, Mapping) else None
    return here
