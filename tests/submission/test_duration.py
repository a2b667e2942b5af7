"""How long plans are said to take, from figures that are planted in a ledger, and from real calibrations."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from knockout.account import count
from knockout.declare.document import Document
from knockout.declare.plan import Cell
from knockout.declare.settings import defaults
from knockout.declare.tune import Tune
from knockout.ledger.speeds import CALIBRATION, Speed, recall, remember
from knockout.ledger.store import Ledger
from knockout.ledger.workspace import open_workspace
from knockout.submission import duration as module
from knockout.submission.calibrating import Calibrator
from knockout.submission.duration import START_SECONDS, duration
from knockout.submission.estimating import (
    CHECKPOINT_SECONDS,
    END_SECONDS,
    cell_shape,
    closed_form,
    paces,
    run_seconds,
    whole_trials,
)
from knockout.submission.schedule import makespan

TINY: dict[str, Any] = {
    "width": 16, "heads": 2, "depth": 2, "context": 16, "vocabulary": 32, "batch": 4, "tokens": 6400, "learning_rate": 0.005,
    "evaluations": 4,
}  # fmt: skip
EXAM = 256


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = Ledger(open_workspace(tmp_path / "home"))
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def two_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "usable_slots", lambda: 2)


def cell(variant: str = "baseline", **changes: Any) -> Cell:
    return Cell(variant, "tiny", *defaults().over(Document({**TINY, **changes}, {})).resolve(), {})


def name(cell: Cell) -> str:
    return cell_shape(cell, exam_tokens=EXAM)


def best_makespan(jobs: list[float], *, slots: int) -> float:
    """By trying every assignment."""
    return min(
        max(sum(job for job, at in zip(jobs, where, strict=True) if at == slot) for slot in range(slots))
        for where in itertools.product(range(slots), repeat=len(jobs))
    )


def test_the_longest_job_first_gives_grahams_example():
    """Graham 1969, figure 5: 11 where 9 is possible, exactly 4/3 - 1/9 of it."""
    jobs = [5.0, 5.0, 4.0, 4.0, 3.0, 3.0, 3.0]
    assert (makespan(jobs, slots=3), best_makespan(jobs, slots=3)) == (11.0, 9.0)


@pytest.mark.parametrize("slots", [1, 2, 3])
@pytest.mark.parametrize("jobs", [[], [7.0], [3.0, 3.0, 2.0, 2.0, 2.0], [9.0, 1.0, 1.0, 1.0, 5.0], [1.5] * 6])
def test_a_schedule_is_within_grahams_bound_of_the_best(jobs: list[float], slots: int):
    best = best_makespan(jobs, slots=slots)
    assert best <= makespan(jobs, slots=slots) <= (4 / 3 - 1 / (3 * slots)) * best + 1e-9
    assert makespan(jobs, slots=slots) >= sum(jobs) / slots


def test_a_run_takes_its_steps_its_evaluations_its_start_and_its_end():
    assert run_seconds(cell(), speed=Speed(2.0, 0.1, 0.5)) == pytest.approx(2.0 + 100 * 0.1 + 4 * 0.5 + END_SECONDS)


def test_what_is_measured_is_taken_as_it_is_and_corrects_the_rest():
    cells = [cell(depth=depth) for depth in (4, 8, 16)]
    form = {name(one): closed_form(one, exam_tokens=EXAM) for one in cells}
    deep, deeper, deepest = form
    known = {one: Speed(0.1, 3.0 * form[one].step_seconds, 7.0 * form[one].evaluation_seconds) for one in (deep, deepest)}
    found = paces(cells, exam_tokens=EXAM, known=known)
    assert (found[deep].speed, found[deep].measured) == (known[deep], True)
    assert not found[deeper].measured
    assert found[deeper].speed.step_seconds == pytest.approx(3.0 * form[deeper].step_seconds)
    assert found[deeper].speed.evaluation_seconds == pytest.approx(7.0 * form[deeper].evaluation_seconds)


def test_the_closed_form_knows_blocks_flops_micro_batches_and_prefixes():
    base, flops = closed_form(cell(), exam_tokens=EXAM), count(cell().architecture).flops_per_token
    longer = closed_form(cell(batch=8), exam_tokens=EXAM)
    per_token = (longer.step_seconds - base.step_seconds) / (4 * 16)
    assert longer.evaluation_seconds == base.evaluation_seconds
    assert closed_form(cell(accumulate=2), exam_tokens=EXAM).step_seconds > 1.5 * base.step_seconds
    more, again = (closed_form(cell(depth=depth), exam_tokens=EXAM).step_seconds for depth in (4, 6))
    assert again - more == pytest.approx(more - base.step_seconds, rel=1e-6)
    assert more > 1.4 * base.step_seconds, "a narrow stack pays for its blocks, not for its arithmetic"
    assert per_token == pytest.approx(flops.training / 1.0e11, rel=1.0)
    blind = closed_form(cell(attention={"causal": False}), exam_tokens=EXAM)
    passes = (blind.evaluation_seconds - CHECKPOINT_SECONDS) / (base.evaluation_seconds - CHECKPOINT_SECONDS)
    assert passes > 16, "each prefix is run by itself"


def plant(ledger: Ledger, *cells: tuple[Cell, float]) -> None:
    """Have a run of each cell take so many seconds from start to end."""
    for one, total in cells:
        remember(ledger, shape=name(one), origin="run", speed=Speed(0.0, (total - END_SECONDS) / 100, 0.0))


def test_judged_runs_share_the_slots_after_the_searches_whose_trials_follow_one_another(ledger: Ledger):
    short, long = cell(), cell(depth=3)
    plant(ledger, (short, 10.0), (long, 30.0))
    found = duration(
        [short, short, short, long], searches=[(short, 4), (long, 2)], exam_tokens=EXAM, ledger=ledger, calibrator=None
    )
    assert found.slots == 2
    assert found.measured_share == pytest.approx(1.0)
    assert found.core_seconds == pytest.approx(3 * 10 + 30 + 4 * 10 + 2 * 30)
    assert found.seconds == pytest.approx(START_SECONDS + 60.0 + 30.0)


@pytest.mark.parametrize(
    ("pruner", "left", "whole"),
    [
        ({"kind": "none"}, 5, 5.0),
        ({"kind": "slack", "startup": 1, "after": 0.25}, 5, 1 + 4 * 0.625),
        ({"kind": "slack", "startup": 1, "after": 0.25}, 3, 3 * 0.625),
        ({"kind": "median", "startup": 2, "after": 0.5}, 5, 2 + 3 * 0.75),
        ({"kind": "median", "startup": 9, "after": 0.5}, 5, 5.0),
        ({"kind": "hyperband", "after": 0.125}, 5, 1 + 4 * 0.5625),
        ({"kind": "slack", "startup": 1, "after": 0.25}, 1, 0.625),
        ({"kind": "slack", "startup": 1, "after": 0.25}, 0, 0.0),
    ],
)
def test_a_trial_that_pruning_may_end_counts_with_the_middle_of_what_it_may_take(pruner: dict, left: int, whole: float):
    tune = Tune.model_validate({"learning_rate": {"low": 0.001, "high": 0.1}, "trials": 5, "pruner": pruner})
    assert whole_trials(left, tune=tune) == pytest.approx(whole)
    twice = tune.model_copy(update={"seeds": 2})
    assert whole_trials(2 * left, tune=twice) == pytest.approx(2 * whole)


def test_runs_of_one_shape_and_other_budgets_are_told_from_the_same_figure(ledger: Ledger):
    short, long = cell(), cell(tokens=64_000)
    remember(ledger, shape=name(short), origin="run", speed=Speed(0.0, 0.01, 0.0))
    found = duration([short, long], searches=[], exam_tokens=EXAM, ledger=ledger, calibrator=None)
    assert found.core_seconds == pytest.approx(1.0 + 10.0 + 2 * END_SECONDS)


def test_nothing_to_do_takes_no_time(ledger: Ledger):
    found = duration([], searches=[], exam_tokens=EXAM, ledger=ledger, calibrator=None)
    assert (found.seconds, found.core_seconds, found.measured_share) == (0.0, 0.0, 1.0)


def test_a_cell_that_never_ran_is_timed_once_and_remembered(ledger: Ledger):
    plain, blind = cell(), cell(attention={"causal": False})
    told: list[tuple[int, int]] = []
    with Calibrator(ledger.workspace, progress=lambda done, total: told.append((done, total))) as calibrator:
        found = duration([plain, blind], searches=[], exam_tokens=EXAM, ledger=ledger, calibrator=calibrator)
    assert told == [(0, 2), (2, 2)]
    assert found.measured_share == pytest.approx(1.0)
    known = recall(ledger, shapes=[name(plain), name(blind)])
    assert len(known) == 2
    for speed in known.values():
        assert all(0 < part < 10 for part in (speed.start_seconds, speed.step_seconds, speed.evaluation_seconds))
    expected = sum(run_seconds(one, speed=known[name(one)]) for one in (plain, blind))
    assert found.core_seconds == pytest.approx(expected)
    assert not (ledger.workspace.folder / "calibrations").exists()
    with Calibrator(ledger.workspace) as calibrator:
        again = duration([plain, blind], searches=[], exam_tokens=EXAM, ledger=ledger, calibrator=calibrator)
        assert calibrator.nursery is None, "nothing was left to time"
    assert again == found


def test_what_weighs_little_is_not_timed(ledger: Ledger):
    plain, deep = cell(tokens=640_000), cell(depth=3, tokens=640)
    remember(ledger, shape=name(plain), origin=CALIBRATION, speed=Speed(0.1, 0.005, 0.1))
    with Calibrator(ledger.workspace) as calibrator:
        found = duration([plain, deep], searches=[], exam_tokens=EXAM, ledger=ledger, calibrator=calibrator)
        assert calibrator.nursery is None
    assert 0.8 < found.measured_share < 1.0


def test_a_model_too_large_to_be_timed_in_the_budget_goes_by_the_closed_form(ledger: Ledger):
    large = cell(width=4096, heads=32, depth=32, context=1024, batch=64, tokens=6_553_600)
    with Calibrator(ledger.workspace) as calibrator:
        found = duration([large], searches=[], exam_tokens=EXAM, ledger=ledger, calibrator=calibrator)
        assert calibrator.nursery is None
    assert found.measured_share == pytest.approx(0.0)
    assert found.core_seconds == pytest.approx(run_seconds(large, speed=closed_form(large, exam_tokens=EXAM)))


def test_runs_on_two_devices_take_half_as_long_and_twice_the_room(ledger: Ledger):
    given = {"searches": [], "exam_tokens": EXAM, "ledger": ledger, "calibrator": None}
    one, two = (duration([cell()] * 4, **given, devices=devices) for devices in (1, 2))
    assert (one.slots, two.slots) == (2, 1)
    assert two.seconds == pytest.approx(one.seconds)
    assert two.core_seconds == one.core_seconds
