"""What a search cost and saved, and the evaluations that it goes by."""

from __future__ import annotations

from pathlib import Path

import pytest

from knockout.search.trial import Trial
from knockout.submission.curve import RunCurve
from knockout.submission.tuned import Cost, TriedPoint, Tuned
from knockout.training.metrics import MetricLog, seal_metrics

FULL = 1_000


def point(
    number: int, state: str, *, tokens: int, spared: int = 0, loss: float | None = None, extends: str | None = None
) -> TriedPoint:
    trial = Trial(number, {"learning_rate": 0.1}, state, loss, ((50, 4.0), (100, 3.0)), None, extends)  # type: ignore[arg-type]
    cost = Cost(seconds=tokens / 100, tokens=tokens, flops=tokens * 6.0)
    return TriedPoint(trial, cost, full_tokens=FULL, spared_tokens=spared, identities=(f"{number}",), reused=False)


def tuned(*points: TriedPoint) -> Tuned:
    return Tuned("baseline", "pico", points, {"learning_rate": 0.1}, {}, {"learning_rate": True})


def test_what_is_saved_lies_after_the_steps_at_which_trials_were_pruned():
    """4,000 tokens in full; the pruned trial was trained on 400 by an earlier search and is pruned at 300, which spares 700;
    the diverged one lacks 900 and spares nothing."""
    found = tuned(
        point(0, "done", tokens=1_000, loss=3.0),
        point(1, "pruned", tokens=400, spared=700),
        point(2, "diverged", tokens=100),
        point(3, "done", tokens=1_000, loss=2.9, extends="learning_rate"),
    )
    assert found.saved_share == pytest.approx(700 / 4_000)
    assert found.cost == Cost(seconds=25.0, tokens=2_500, flops=15_000.0)
    assert found.sentence == "4 trials, 1 of them beyond the range, 1 pruned: 18% of the tuning tokens saved"


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
