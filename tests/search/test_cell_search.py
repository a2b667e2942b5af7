"""The search of one cell: what it proposes, and that a search that is walked again proposes the same."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from pydantic import ValidationError

from knockout.declare.tune import Tune
from knockout.search.cell import CellSearch, Trial, best, on_edge

SAMPLERS = ("grid", "tpe", "random")


def tune_of(sampler: str = "grid", *, trials: int = 5, low: float = 1e-4, high: float = 1.0) -> Tune:
    ranges = {"learning_rate": {"low": low, "high": high}}
    return Tune.model_validate_json(json.dumps({**ranges, "trials": trials, "sampler": {"kind": sampler}}))


def valley(trial: Trial) -> float:
    """A loss that is least at 1e-2."""
    return (math.log10(trial.values["learning_rate"]) + 2.0) ** 2


def opened(tmp_path: Path, sampler: str, *, file: str = "o.db", trials: int = 5) -> CellSearch:
    return CellSearch(tune_of(sampler, trials=trials), storage=f"sqlite:///{tmp_path / file}", name="cell")


def walk(search: CellSearch) -> list[Trial]:
    while (trial := search.ask()) is not None:
        search.tell(trial, loss=valley(trial))
    return search.trials()


def test_a_grid_spreads_its_trials_evenly_over_the_logarithm(tmp_path: Path):
    values = [trial.values["learning_rate"] for trial in walk(opened(tmp_path, "grid"))]
    assert values == pytest.approx([1e-4, 1e-3, 1e-2, 1e-1, 1.0])


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_budget_is_spent_once(sampler: str, tmp_path: Path):
    first = walk(opened(tmp_path, sampler))
    assert len(first) == 5
    assert len({trial.values["learning_rate"] for trial in first}) == 5
    assert walk(opened(tmp_path, sampler)) == first


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_search_whose_database_is_lost_proposes_the_same_again(sampler: str, tmp_path: Path):
    assert walk(opened(tmp_path, sampler)) == walk(opened(tmp_path, sampler, file="new.db"))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_trial_that_a_dead_coordinator_left_open_is_asked_again(sampler: str, tmp_path: Path):
    whole = walk(opened(tmp_path, sampler, file="whole.db"))
    search = opened(tmp_path, sampler)
    asked = search.ask()
    assert asked is not None
    search.tell(asked, loss=valley(asked))
    left = search.ask()
    again = opened(tmp_path, sampler)
    assert again.ask() == left
    assert left is not None
    again.tell(left, loss=valley(left))
    assert walk(again) == whole


def test_a_diverged_trial_is_never_best_and_is_not_repeated(tmp_path: Path):
    search = opened(tmp_path, "grid", trials=3)
    losses = [None, float("-inf"), 5.0]
    while (trial := search.ask()) is not None:
        search.tell(trial, loss=losses[trial.number])
    trials = search.trials()
    assert [trial.loss for trial in trials] == [None, None, 5.0]
    assert best(trials) == trials[2]
    assert best(trials[:2]) is None


@pytest.mark.parametrize(("value", "edge"), [(1e-4, "low"), (1.1e-4, "low"), (1e-2, None), (0.98, "high"), (0.5, None)])
def test_a_best_value_at_an_end_of_its_range_is_flagged(value: float, edge: str | None):
    assert on_edge({"learning_rate": value}, tune=tune_of()) == ({} if edge is None else {"learning_rate": edge})


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('{"trials": 3}', ("trials",)),
        ('{"learning_rate": {"low": 1.0, "high": 0.1}}', ("learning_rate", "high")),
        ('{"learning_rate": {"low": 0.0, "high": 0.1}}', ("learning_rate", "low")),
        ('{"learning_rate": {"low": 0.1, "high": 1.0}, "clip": {"low": 0.1, "high": 1.0}}', ("sampler", "kind")),
        ('{"learning_rate": {"low": 0.1, "high": 1.0}, "trails": 3}', ("trails",)),
    ],
)
def test_a_search_that_makes_no_sense_is_refused_at_its_place(text: str, path: tuple[str, ...]):
    with pytest.raises(ValidationError) as caught:
        Tune.model_validate_json(text)
    assert caught.value.errors()[0]["loc"] == path
