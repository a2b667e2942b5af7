"""What is searched for every variant before it is judged: the same ranges, the same number of trials.

Beside `trials`, `seeds` and `sampler`, every key is the path of a numeric setting with the range it is searched in.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from knockout.declare.base import Declaration, Positive, conflicts


class Range(Declaration):
    """An interval of a numeric setting."""

    low: float
    """Smallest value."""
    high: float
    """Largest value, over low."""
    log: bool = True
    """Search the logarithm, as suits a learning rate; low is over 0 then."""

    @model_validator(mode="after")
    def _stands_together(self) -> Range:
        found: list[tuple[str, object, str]] = []
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


class Random(Declaration):
    """Independent draws."""

    kind: Literal["random"] = "random"


class Grid(Declaration):
    """`trials` values spread evenly over one range, both ends included; one setting only."""

    kind: Literal["grid"] = "grid"


class Tune(Declaration):
    """The search of each cell. Tuning seeds are apart from the judged ones."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Range]  # type: ignore[reportIncompatibleVariableOverride]  # pydantic's way to type extras

    trials: Annotated[int, Field(ge=2, le=10_000)] = 6
    """Trials for each cell, at least 2; the same for every variant."""
    seeds: Positive = 1
    """Seeds that each trial is the mean of."""
    sampler: Annotated[Tpe | Random | Grid, Field(discriminator="kind")] = Grid()
    """How trials are proposed."""

    @model_validator(mode="after")
    def _stands_together(self) -> Tune:
        found: list[tuple[str, object, str]] = []
        if not self.ranges:
            found.append(
                ("trials", self.trials, "there is nothing to tune: give a range, as learning_rate: {low: 1e-4, high: 1e-2}")
            )
        if isinstance(self.sampler, Grid) and len(self.ranges) > 1:
            found.append(("sampler.kind", "grid", "a grid is over one setting; use tpe or random for several"))
        conflicts("Tune", found)
        return self

    @property
    def ranges(self) -> dict[str, Range]:
        """The searched settings by path."""
        return dict(self.__pydantic_extra__ or {})
