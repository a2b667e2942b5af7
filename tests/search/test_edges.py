"""Going beyond a range: by how far, how often, and never to what is illegal."""

from __future__ import annotations

from functools import partial

import pytest

from knockout.declare.tune import Range, Tune, as_declared
from knockout.search.edges import best, extension, on_edge, reached
from knockout.search.trial import Trial

WHOLE = partial(as_declared, settings={"depth": 2})
"""What runs make of a depth."""


def values(trials) -> list[float]:
    return [trial.values["learning_rate"] for trial in trials]


@pytest.mark.parametrize(("value", "edge"), [(1e-4, "low"), (1.1e-4, "low"), (1e-2, None), (0.98, "high"), (0.5, None)])
def test_a_best_value_at_an_end_of_its_range_is_flagged(value: float, edge: str | None, searching):
    found = on_edge({"learning_rate": value}, ranges=searching.tune().ranges)
    assert found == ({} if edge is None else {"learning_rate": edge})


@pytest.mark.parametrize(("depth", "edge"), [(1.4, "low"), (1.6, None), (3.4, None), (3.6, "high"), (4.0, "high")])
def test_a_whole_number_is_at_an_end_when_it_is_what_a_run_makes_of_it(depth: float, edge: str | None):
    found = on_edge({"depth": depth}, ranges={"depth": Range(low=1.2, high=4.0)}, as_run=WHOLE)
    assert found == ({} if edge is None else {"depth": edge})


def test_a_whole_number_at_its_end_is_followed_to_the_next_and_no_point_is_tried_twice():
    def done(*depths: float) -> list[Trial]:
        return [Trial(n, {"depth": depth}, "done", loss=depth) for n, depth in enumerate(depths)]

    def asked(trials: list[Trial], *, low: float) -> object:
        tune = Tune.model_validate({"depth": {"low": low, "high": 9.0, "log": False}, "trials": 5, "extend": 9})
        return extension(trials, tune=tune, accepts=lambda _: True, as_run=WHOLE)

    assert asked(done(3.3, 5.0, 7.0), low=3.0) == ("depth", {"depth": 1.5})
    assert asked(done(3.3, 2.3, 5.0), low=3.4) == ("depth", {"depth": pytest.approx(0.9)})
    assert asked(done(1.4, 5.0), low=1.4) == ("depth", {"depth": pytest.approx(-0.5)})
    narrow = Tune.model_validate({"depth": {"low": 1.0, "high": 2.0, "log": False}, "trials": 7})
    assert extension(done(1.3, 2.0), tune=narrow, accepts=lambda _: True, as_run=WHOLE) is None


def test_a_best_at_the_end_is_followed_a_grid_step_at_a_time_as_often_as_declared(searching):
    trials = searching.walk(searching.open(extend=2), searching.slope)
    assert values(trials)[5:] == pytest.approx([10.0, 100.0]), "the range holds a trial for each factor of ten"
    assert [trial.extends for trial in trials] == [None] * 5 + ["learning_rate"] * 2
    ranges = reached(searching.tune(), trials=trials)
    assert (ranges["learning_rate"].low, ranges["learning_rate"].high) == pytest.approx((1e-4, 100.0))
    assert on_edge(best(trials).values, ranges=ranges) == {"learning_rate": "high"}, "still open, so still flagged"


def test_a_best_that_is_found_beyond_the_end_ends_the_search_there(searching):
    def turning(trial) -> float:
        return abs(trial.values["learning_rate"] - 9.0)

    trials = searching.walk(searching.open(extend=5), turning)
    assert values(trials)[5:] == pytest.approx([10.0, 100.0])
    assert best(trials) == trials[5]
    assert on_edge(best(trials).values, ranges=reached(searching.tune(), trials=trials)) == {}


def test_a_best_at_the_low_end_is_followed_downwards_in_an_even_scale(searching):
    declared = {"learning_rate": {"low": 0.2, "high": 1.0, "log": False}, "extend": 1}
    trials = searching.walk(searching.open(**declared), lambda trial: trial.values["learning_rate"])
    assert values(trials)[5:] == pytest.approx([0.0])


def test_what_is_illegal_is_not_tried(searching):
    search = searching.open(extend=2, accepts=lambda point: point["learning_rate"] < 50.0)
    assert values(searching.walk(search, searching.slope))[5:] == pytest.approx([10.0])


def test_a_best_within_the_range_is_not_followed(searching):
    assert len(searching.walk(searching.open(extend=2))) == 5


def test_a_walk_that_is_cut_off_anywhere_comes_to_the_same_end(searching):
    made = {"extend": 2, "pruner": "median", "trials": 4}
    whole = searching.walk(searching.open(file="whole.db", **made), searching.slope)
    assert len(whole) == 6
    for cut in (1, 4, 5):
        file = f"cut-{cut}.db"
        searching.walk(searching.open(file=file, **made), searching.slope, most=cut)
        searching.open(file=file, **made).ask()
        assert searching.walk(searching.open(file=file, **made), searching.slope) == whole


def test_a_whole_number_takes_the_nearest_one():
    settings = {"warmup_steps": 100, "clip": 1.0, "ffn": {"kind": "gelu", "hidden": 256}, "qk": True}
    tried = {"warmup_steps": 33.4, "clip": 0.7, "ffn.hidden": 127.5, "qk": 0.6}
    assert as_declared(tried, settings=settings) == {"warmup_steps": 33, "clip": 0.7, "ffn.hidden": 128, "qk": 0.6}
