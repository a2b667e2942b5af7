"""What a search cost and saved, and the evaluations that it goes by."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from knockout.search.trial import Trial
from knockout.submission.curve import RunCurve
from knockout.submission.tuned import Cost, TriedPoint, Tuned
from knockout.training.metrics import MetricLog, seal_metrics


def point(
    number: int,
    state: str,
    *,
    tokens: int,
    until: int = 100,
    seeds: int = 1,
    loss: float | None = None,
    extends: str | None = None,
) -> TriedPoint:
    """A trial whose search saw its run up to a step of 100, and whose runs were trained on some tokens of 1,000 a seed."""
    curve = tuple((step, 5.0 - step / 50) for step in range(10, until + 1, 10))
    trial = Trial(number, {"learning_rate": 0.1}, state, loss, curve, None, extends)  # type: ignore[arg-type]
    cost = Cost(seconds=tokens / 100, tokens=tokens, flops=tokens * 6.0)
    runs: Any = tuple(SimpleNamespace(identity=f"{number}-{seed}") for seed in range(seeds))
    return TriedPoint(trial, cost, runs=runs, reused=False)


def tuned(*points: TriedPoint) -> Tuned:
    return Tuned("baseline", "pico", points, {"learning_rate": 0.1}, {}, {"learning_rate": True}, "val_loss")


def test_what_is_saved_lies_after_the_steps_at_which_trials_were_pruned():
    """4,000 tokens in full; the pruned trial is pruned at step 30 of 100, which spares 700 of its 1,000 tokens whether its
    run ended there, or another study trained it on 400, or to its end; the diverged one lacks 900 and spares nothing."""
    for trained in (300, 400, 1_000):
        found = tuned(
            point(0, "done", tokens=1_000, loss=3.0),
            point(1, "pruned", tokens=trained, until=30),
            point(2, "diverged", tokens=100, until=10),
            point(3, "done", tokens=1_000, loss=2.9, extends="learning_rate"),
        )
        assert found.to_dict()["saved_share"] == pytest.approx(700 / 4_000)
        assert found.cost == Cost(seconds=21.0 + trained / 100, tokens=2_100 + trained, flops=6.0 * (2_100 + trained))
        assert found.sentence == "4 trials, 1 of them beyond the range, 1 pruned: 18% of the tuning tokens saved"


def test_the_further_seeds_of_a_pruned_trial_are_saved_whole():
    """Three seeds of 1,000 tokens a trial: of 6,000 in full, the pruned one spares 500 of its first seed and two seeds."""
    found = tuned(point(0, "done", tokens=3_000, seeds=3, loss=3.0), point(1, "pruned", tokens=500, until=50, seeds=3))
    assert found.to_dict()["saved_share"] == pytest.approx(2_500 / 6_000)


def test_a_search_without_pruning_says_how_many_trials_it_had():
    found = tuned(point(0, "done", tokens=1_000, loss=3.0), point(1, "done", tokens=1_000, loss=2.0))
    assert found.sentence == "2 trials"
    assert found.to_dict()["trials"][0]["last"] == (100, 3.0)


def test_a_runs_evaluations_are_read_while_it_trains_and_after_it_was_sealed(tmp_path: Path):
    log = MetricLog(tmp_path, after_step=0, tokens_per_step=64)
    curve = RunCurve(tmp_path, metric="val_loss")
    assert curve.read() == ()
    log.add(9, {"train_loss": 5.5})
    log.add(10, {"val_loss": 5.0, "generation_loss": 6.0})
    assert curve.read() == (), "nothing is on the disk yet"
    log.flush()
    assert curve.read() == ((10, 5.0),)
    log.add(20, {"val_loss": 4.0, "generation_loss": 6.5})
    log.flush()
    assert curve.read() == ((10, 5.0), (20, 4.0))
    seal_metrics(tmp_path)
    assert curve.read() == ((10, 5.0), (20, 4.0))
    assert RunCurve(tmp_path, metric="generation_loss").read() == ((10, 6.0), (20, 6.5))


def test_the_evaluations_of_a_run_that_does_not_exist_are_none(tmp_path: Path):
    assert RunCurve(tmp_path / "nowhere", metric="val_loss").read() == ()
