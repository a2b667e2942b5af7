"""The search of one cell: what it proposes, and that a search that is walked again proposes the same."""

from __future__ import annotations

import math

import optuna
import pytest
from pydantic import ValidationError

from knockout.declare.tune import Tune
from knockout.search import sampling
from knockout.search.cell import finished_trials
from knockout.search.edges import best
from knockout.search.pruning import Pruned

SAMPLERS = ("grid", "tpe", "gp", "random")


def values(trials) -> list[float]:
    return [trial.values["learning_rate"] for trial in trials]


def test_a_grid_spreads_its_trials_evenly_over_the_logarithm_from_the_middle_outwards(searching):
    found = values(searching.walk(searching.open()))
    assert found == pytest.approx([1e-2, 1e-1, 1e-3, 1.0, 1e-4])
    assert values(searching.walk(searching.open(trials=2, file="two.db"))) == pytest.approx([1.0, 1e-4])


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_budget_is_spent_once(sampler: str, searching):
    first = searching.walk(searching.open(sampler))
    assert len(first) == 5
    assert len(set(values(first))) == 5
    assert searching.walk(searching.open(sampler)) == first


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_search_whose_database_is_lost_proposes_and_prunes_the_same_again(sampler: str, searching):
    made = {"trials": 6, "pruner": "median"}
    first = searching.walk(searching.open(sampler, **made))
    assert searching.walk(searching.open(sampler, file="new.db", **made)) == first


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_trial_that_a_dead_coordinator_left_open_is_asked_again(sampler: str, searching):
    whole = searching.walk(searching.open(sampler, file="whole.db"))
    search = searching.open(sampler)
    searching.walk(search, most=1)
    left = search.ask()
    again = searching.open(sampler)
    assert again.ask() == left
    assert left is not None
    again.tell(left, loss=searching.valley(left), curve=searching.curve_to(searching.valley(left)))
    assert searching.walk(again) == whole


def test_variants_that_are_searched_at_random_are_tried_at_the_same_points(searching):
    here, there = searching.open("random"), searching.open("random", file="other.db")
    assert values(searching.walk(here)) == values(searching.walk(there, searching.slope))


@pytest.mark.parametrize(("sampler", "trials"), [("tpe", 60), ("gp", 12)])
def test_a_sampler_that_learns_draws_nearer_to_the_best_than_chance(sampler: str, trials: int, searching):
    """A draw that is uniform over the four decades has an expected loss of 4**2 / 12."""
    tune, study = searching.tune(sampler, trials=trials), optuna.create_study()
    losses = []
    for number in range(trials):
        study.sampler = sampling.sampler(tune, number=number)
        asked = study.ask({"learning_rate": sampling.distribution(tune.ranges["learning_rate"])})
        losses.append((math.log10(asked.params["learning_rate"]) + 2.0) ** 2)
        study.tell(asked, losses[-1])
    assert sum(losses[trials // 2 :]) / (trials // 2) < 4**2 / 12 / 2
    assert min(losses) < 0.05, "within a quarter of a decade of the best"


def test_a_diverged_or_pruned_trial_is_never_best_and_is_not_repeated(searching):
    search = searching.open(trials=4)
    ends = [{"loss": None}, {"loss": -math.inf}, {"loss": None, "pruned": Pruned(100, "too high")}, {"loss": 5.0}]
    while (trial := search.ask()) is not None:
        search.tell(trial, curve=((50, 0.5), (100, 0.1)), **ends[trial.number])
    trials = search.trials()
    assert [(trial.state, trial.loss) for trial in trials] == [
        ("diverged", None), ("diverged", None), ("pruned", None), ("done", 5.0),
    ]  # fmt: skip
    assert best(trials) == trials[3]
    assert best(trials[:3]) is None
    assert trials[2].reason == "too high"


def test_a_trial_is_told_once(searching):
    search = searching.open(trials=2)
    trial = search.ask()
    search.tell(trial, loss=1.0)
    search.tell(trial, loss=0.5)
    assert search.trials()[0].loss == 1.0


def test_looking_at_a_search_makes_none(searching):
    searching.walk(searching.open(), most=2)
    storage = f"sqlite:///{searching.folder / 'o.db'}"
    assert len(finished_trials(storage, name="cell")) == 2
    assert finished_trials(storage, name="other") == []


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('{"trials": 3}', ("trials",)),
        ('{"learning_rate": {"low": 1.0, "high": 0.1}}', ("learning_rate", "high")),
        ('{"learning_rate": {"low": 0.0, "high": 0.1}}', ("learning_rate", "low")),
        ('{"learning_rate": {"low": 0.1, "high": 1.0}, "clip": {"low": 0.1, "high": 1.0}}', ("sampler", "kind")),
        ('{"learning_rate": {"low": 0.1, "high": 1.0}, "trails": 3}', ("trails",)),
        ('{"learning_rate": {"low": 0.1, "high": 1.0}, "extend": -1}', ("extend",)),
        ('{"batch": {"low": 4, "high": 16}}', ("pruner", "kind")),
        (
            '{"learning_rate": {"low": 0.1, "high": 1.0}, "pruner": {"kind": "median", "after": 1.0}}',
            ("pruner", "median", "after"),
        ),
        (
            '{"learning_rate": {"low": 0.1, "high": 1.0}, "pruner": {"kind": "hyperband", "reduction": 1}}',
            ("pruner", "hyperband", "reduction"),
        ),
    ],
)
def test_a_search_that_makes_no_sense_is_refused_at_its_place(text: str, path: tuple[str, ...]):
    with pytest.raises(ValidationError) as caught:
        Tune.model_validate_json(text)
    assert caught.value.errors()[0]["loc"] == path
