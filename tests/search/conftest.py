"""Searches over a learning rate, in a database of their own."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from knockout.declare.tune import Tune
from knockout.search.cell import CellSearch
from knockout.search.trial import Curve, Trial

STEPS = 400
EVALUATIONS = tuple(range(50, STEPS + 1, 50))


def tune_of(
    sampler: str = "grid", *, trials: int = 5, low: float = 1e-4, high: float = 1.0, pruner: str = "none", **more: Any
) -> Tune:
    declared = {"learning_rate": {"low": low, "high": high}, "trials": trials, "extend": 0, **more}
    return Tune.model_validate_json(json.dumps({**declared, "sampler": {"kind": sampler}, "pruner": {"kind": pruner}}))


def valley(trial: Trial) -> float:
    """A loss that is least at 1e-2."""
    return (math.log10(trial.values["learning_rate"]) + 2.0) ** 2


def slope(trial: Trial) -> float:
    """A loss that falls for ever as the learning rate grows."""
    return 10.0 - math.log10(trial.values["learning_rate"])


def curve_to(loss: float) -> Curve:
    """Evaluations that fall to a loss, none crossing that to another."""
    return tuple((step, loss + 1.0 - step / STEPS) for step in EVALUATIONS)


def walk(search: CellSearch, loss: Callable[[Trial], float] = valley, *, most: int | None = None) -> list[Trial]:
    """Bring trials to their ends, pruned where the search says so."""
    count = 0
    while count != most and (trial := search.ask()) is not None:
        count += 1
        curve = curve_to(loss(trial))
        pruned = search.pruning(trial).decide(curve)
        search.tell(trial, loss=loss(trial), curve=curve, pruned=pruned)
    return search.trials()


@dataclass(frozen=True)
class Searching:
    """A folder with databases of searches."""

    folder: Path
    steps: int = STEPS
    evaluations: tuple[int, ...] = EVALUATIONS
    tune: Callable[..., Tune] = staticmethod(tune_of)  # noqa: RUF009  # a plain function
    walk: Callable[..., list[Trial]] = staticmethod(walk)  # noqa: RUF009  # a plain function
    curve_to: Callable[[float], Curve] = staticmethod(curve_to)  # noqa: RUF009  # a plain function
    valley: Callable[[Trial], float] = staticmethod(valley)  # noqa: RUF009  # a plain function
    slope: Callable[[Trial], float] = staticmethod(slope)  # noqa: RUF009  # a plain function

    def open(
        self,
        sampler: str = "grid",
        *,
        file: str = "o.db",
        accepts: Callable[[Mapping[str, float]], bool] = lambda _: True,
        **changes: Any,
    ) -> CellSearch:
        """The search in a database, made when it is not there."""
        storage = f"sqlite:///{self.folder / file}"
        return CellSearch(tune_of(sampler, **changes), storage=storage, name="cell", num_steps=STEPS, accepts=accepts)


@pytest.fixture
def searching(tmp_path: Path) -> Searching:
    return Searching(tmp_path)
