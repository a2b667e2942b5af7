"""What a run goes on from, when some of what it had left is gone, damaged or another's."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from resuming import came_to, last_checkpoint

from knockout.model import build
from knockout.training.checkpoints import load_checkpoint
from knockout.training.covering import Coverage, Gap, cover, faults, find_gap
from knockout.training.metrics import segments
from knockout.training.result import checkpoint_files
from knockout.training.spec import CHECKPOINTS, LOG, PASSED_OVER, SEGMENTS
from knockout.training.starting import begin, find_start

STEPS = 200
CHANGES: dict[str, Any] = {"tokens": 64 * STEPS, "evaluations": 8}
"""200 steps; an evaluation, and with it a checkpoint, each 25."""


@pytest.fixture(scope="module")
def uninterrupted(laboratory, tmp_path_factory) -> dict[str, Any]:
    run = laboratory.declare(tmp_path_factory.mktemp("uninterrupted"), **CHANGES)
    assert laboratory.train(run) == 0
    return came_to(run.folder)


@pytest.fixture(scope="module")
def cut_runs(laboratory, until, tmp_path_factory) -> dict[int, Any]:
    """Runs of two seeds that were killed at their fourth checkpoint or soon after."""
    found = {}
    for seed in (0, 1):
        run = found[seed] = laboratory.declare(tmp_path_factory.mktemp("cut"), seed=seed, **CHANGES)
        child = laboratory.launch(run)
        until(lambda run=run, child=child: last_checkpoint(run.folder) >= 100 or child.ended.is_set())
        os.kill(child.pid, signal.SIGKILL)
        until(child.ended.is_set)
        assert len(checkpoint_files(run.folder)) >= 2, "it was to be killed on its way"
    return found


@pytest.fixture
def cut(cut_runs, tmp_path: Path) -> Path:
    """A copy of the folder of the first one."""
    folder = cut_runs[0].folder
    return Path(shutil.copytree(folder, tmp_path / folder.name))


@pytest.fixture
def other(cut_runs) -> Path:
    """The folder of the second one, which has the same shapes."""
    return cut_runs[1].folder


def newest(folder: Path) -> Path:
    return checkpoint_files(folder)[-1]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0xFF
    path.write_bytes(content)


def swap(name: str) -> Callable[[Path, Path], object]:
    return lambda folder, other: shutil.copy(other / name, folder / name)


FIRST = f"{SEGMENTS}/{25:010d}.parquet"
SECOND = f"{SEGMENTS}/{50:010d}.parquet"
DAMAGES: dict[str, tuple[Callable[[Path, Path], object], int, str]] = {
    "the first segment is gone": (lambda f, _: (f / FIRST).unlink(), 0, "does not hold the steps 1 to 25"),
    "a segment between is gone": (lambda f, _: (f / SECOND).unlink(), 0, "does not hold the steps 26 to 50"),
    "all segments are gone": (lambda f, _: shutil.rmtree(f / SEGMENTS), 0, "the metrics end at step 0"),
    "a segment is empty": (lambda f, _: (f / SECOND).write_bytes(b""), 0, f"{50:010d}.parquet cannot be read"),
    "a byte of a segment is another": (lambda f, _: flip(f / SECOND), 0, f"{50:010d}.parquet cannot be read"),
    "a segment is another run's": (swap(SECOND), 0, "holds the metrics of run"),
    "the newest checkpoint is another run's": (
        lambda f, o: shutil.copy(newest(o), newest(f)), -2, "is a checkpoint of run"
    ),
    "the newest checkpoint is that of another step": (
        lambda f, _: shutil.copy(checkpoint_files(f)[0], newest(f)), -2, "is not the checkpoint of step"
    ),
    "the segment of the newest checkpoint is gone": (
        lambda f, _: [p.unlink() for p in segments(f) if int(p.stem) >= int(newest(f).stem)], -2, "the metrics end at step"
    ),
    "no checkpoint can be read": (
        lambda f, _: [flip(path) for path in checkpoint_files(f)], 0, "does not load"
    ),
    "all checkpoints are gone": (
        lambda f, _: shutil.rmtree(f / CHECKPOINTS), 0, "its checkpoints are gone, though its metrics reach step"
    ),
}  # fmt: skip
"""What is done to the folder of a run that was cut off; the checkpoint from which it goes on, or 0; and what it says."""

TRAINED = (
    "a segment between is gone", "the newest checkpoint is another run's", "the segment of the newest checkpoint is gone"
)  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_a_run_goes_on_only_from_what_is_whole_and_says_why(cut_runs, cut: Path, other: Path, name: str):
    damage, where, words = DAMAGES[name]
    step = int(checkpoint_files(cut)[where].stem) if where else 0
    damage(cut, other)
    start = find_start(cut, network=build(cut_runs[0].architecture, seed=0))
    assert (start.step, words in (start.said or "")) == (step, True), start.said


@pytest.mark.parametrize("name", TRAINED)
def test_it_then_ends_as_one_that_was_never_cut_off(laboratory, uninterrupted, cut: Path, other: Path, name: str):
    damage, where, _ = DAMAGES[name]
    step = int(checkpoint_files(cut)[where].stem) if where else 0
    damage(cut, other)
    child = laboratory.nursery.launch(cut, runtime=laboratory.runtime(), environment={})
    assert child.ended.wait(60)
    assert child.code == 0, (cut / LOG).read_text()
    assert came_to(cut) == uninterrupted
    begins = f"goes on from step {step}: " if step else "is trained from its start: "
    assert (cut / PASSED_OVER).read_text().startswith(begins)
    assert begins in (cut / LOG).read_text()


def test_what_was_passed_over_does_not_push_out_the_checkpoints_of_the_run_that_starts_anew(
    laboratory, cut: Path, until, uninterrupted
):
    stale = last_checkpoint(cut)
    shutil.rmtree(cut / SEGMENTS)
    child = laboratory.nursery.launch(cut, runtime=laboratory.runtime(), environment={})
    until(lambda: (segments(cut) and 25 <= last_checkpoint(cut) < stale) or child.ended.is_set())
    os.kill(child.pid, signal.SIGKILL)
    until(child.ended.is_set)
    assert last_checkpoint(cut) >= 25
    (cut / PASSED_OVER).unlink()
    again = laboratory.nursery.launch(cut, runtime=laboratory.runtime(), environment={})
    assert again.ended.wait(60)
    assert came_to(cut) == uninterrupted
    assert not (cut / PASSED_OVER).exists(), "the second time it had all that it needed"


def test_a_run_of_an_older_knockout_whose_files_do_not_say_whose_they_are_goes_on(
    laboratory, cut_runs, cut: Path, uninterrupted
):
    for path in checkpoint_files(cut):
        state = load_checkpoint(path)
        del state["run"]
        torch.save(state, path)
    for path in segments(cut):
        pq.write_table(pq.read_table(path).replace_schema_metadata(None), path)
    start = find_start(cut, network=build(cut_runs[0].architecture, seed=0))
    assert (start.step, start.said) == (last_checkpoint(cut), None)
    child = laboratory.nursery.launch(cut, runtime=laboratory.runtime(), environment={})
    assert child.ended.wait(60)
    assert came_to(cut) == uninterrupted


def test_a_checkpoint_of_another_network_is_passed_over_also_where_it_does_not_say_whose_it_is(
    laboratory, cut_runs, cut: Path, tmp_path: Path
):
    wider = laboratory.declare(tmp_path / "wider", width=32)
    start = find_start(cut, network=build(wider.architecture, seed=0))
    assert start.step == 0
    assert len(start.passed_over) == len(checkpoint_files(cut))
    assert all(said.endswith("holds another network") for said in start.passed_over)


def test_what_a_dead_process_had_yet_to_drop_is_dropped_by_the_next(cut_runs, cut: Path):
    old = cut / CHECKPOINTS / f"{1:010d}.pt"
    shutil.copy(newest(cut), old)
    kept = checkpoint_files(cut)[-2:]
    begin(cut, start=find_start(cut, network=build(cut_runs[0].architecture, seed=0)))
    assert checkpoint_files(cut) == kept


def test_looking_for_a_start_changes_nothing(cut_runs, cut: Path, other: Path):
    shutil.copy(newest(other), newest(cut))
    before = {path: path.read_bytes() for path in cut.rglob("*") if path.is_file()}
    find_start(cut, network=build(cut_runs[0].architecture, seed=0))
    assert {path: path.read_bytes() for path in cut.rglob("*") if path.is_file()} == before


def test_metrics_reach_as_far_as_no_step_is_missing(cut: Path):
    whole = cover(cut)
    assert whole == Coverage(int(segments(cut)[-1].stem))
    assert list(faults(cut)) == []
    (cut / SECOND).unlink()
    assert cover(cut).step == 25
    shutil.rmtree(cut / CHECKPOINTS)
    assert cover(cut).step == 25, "it is asked of the metrics alone"


@pytest.mark.parametrize(
    ("steps", "found"),
    [([1, 2, 3, 4], None), ([1, 4], Gap(2, 3)), ([], Gap(1, 4)), ([1, 3], Gap(2, 2)), ([2, 3, 4, 4], Gap(1, 1))],
)
def test_a_gap_is_the_first_stretch_of_steps_that_are_missing(steps: list[int], found: Gap | None):
    assert find_gap(steps, wanted=range(1, 5)) == found


def test_a_segment_that_goes_while_the_run_is_trained_fails_it_and_is_named(laboratory, tmp_path: Path, until):
    run = laboratory.declare(tmp_path, **CHANGES)
    child = laboratory.launch(run)
    until(lambda: (run.folder / FIRST).exists() or child.ended.is_set())
    (run.folder / FIRST).unlink()
    until(child.ended.is_set)
    assert child.code == 1
    assert "has lost the metrics of the steps 1 to 25 while" in (run.folder / LOG).read_text().splitlines()[-1]
    assert laboratory.train(run) == 0
