"""Real training processes, killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
from resuming import came_to, last_checkpoint

from knockout.ledger.process import start_time
from knockout.services.environment import quiet_environment
from knockout.training.launcher import Nursery
from knockout.training.metrics import read_metrics
from knockout.training.progress import read_progress
from knockout.training.run import EXIT_STOPPED
from knockout.training.spec import METRICS, RESULT


@pytest.fixture(scope="module")
def uninterrupted(laboratory, tmp_path_factory) -> dict[str, Any]:
    run = laboratory.declare(tmp_path_factory.mktemp("uninterrupted"))
    assert laboratory.train(run) == 0
    return came_to(run.folder)


@pytest.mark.parametrize(
    ("checkpoint_seconds", "kills"),
    [(0.0, (3, 40, 77)), (0.02, (1, 30, 51)), (30.0, (25, 26, 75))],
    ids=["a-checkpoint-each-step", "between-checkpoint-and-evaluation", "only-at-evaluations"],
)
def test_resume_after_kill_equals_an_uninterrupted_run(
    laboratory, until, tmp_path, uninterrupted, checkpoint_seconds, kills
):
    run = laboratory.declare(tmp_path)
    for step in kills:
        child = laboratory.launch(run, checkpoint_seconds=checkpoint_seconds)
        until(lambda child=child, step=step: last_checkpoint(run.folder) >= step or child.ended.is_set())
        if not child.ended.is_set():
            os.kill(child.pid, signal.SIGKILL)
            until(child.ended.is_set)
            assert child.code in (-signal.SIGKILL, 0)
    assert laboratory.train(run, checkpoint_seconds=checkpoint_seconds) == 0
    ended = came_to(run.folder)
    assert ended == uninterrupted
    assert max(Counter((row["metric"], row["step"]) for row in ended["rows"]).values()) == 1
    assert [row["step"] for row in ended["rows"] if row["metric"] == "train_loss"] == list(range(1, 101))


def test_a_run_that_dies_between_its_metrics_and_its_result_is_sealed_by_the_next_process(
    laboratory, tmp_path, uninterrupted
):
    run = laboratory.declare(tmp_path)
    code = """if True:
        import os, sys
        from pathlib import Path
        from knockout.training import run
        from knockout.training.spec import Runtime
        run.write_result = lambda *args, **kwargs: os._exit(9)
        run.train(Path(sys.argv[1]), runtime=Runtime(corpus=sys.argv[2]))"""
    command = [sys.executable, "-c", code, str(run.folder), str(laboratory.corpus.folder)]
    assert subprocess.run(command, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}).returncode == 9
    assert (run.folder / METRICS).exists()
    assert not (run.folder / RESULT).exists()
    assert last_checkpoint(run.folder) == run.num_steps
    assert laboratory.train(run) == 0
    assert came_to(run.folder) == uninterrupted


def test_a_damaged_newest_checkpoint_costs_steps_but_changes_nothing(laboratory, tmp_path, uninterrupted, until):
    run = laboratory.declare(tmp_path)
    child = laboratory.launch(run)
    until(lambda: last_checkpoint(run.folder) >= 50 or child.ended.is_set())
    os.kill(child.pid, signal.SIGKILL)
    until(child.ended.is_set)
    newest = run.folder / "checkpoints" / f"{last_checkpoint(run.folder):010d}.pt"
    newest.write_bytes(newest.read_bytes()[:1000])
    assert laboratory.train(run) == 0
    assert came_to(run.folder) == uninterrupted


def test_sigterm_stops_after_a_whole_step_with_a_checkpoint_and_the_next_process_goes_on(
    laboratory, tmp_path, uninterrupted, until
):
    run = laboratory.declare(tmp_path)
    child = laboratory.launch(run)
    until(lambda: read_progress(run.folder))
    laboratory.nursery.signal(child, signal.SIGTERM)
    until(child.ended.is_set)
    assert child.code == EXIT_STOPPED
    assert last_checkpoint(run.folder) == read_metrics(run.folder)["step"].to_pylist()[-1]
    assert not (run.folder / RESULT).exists()
    assert laboratory.train(run) == 0
    assert came_to(run.folder) == uninterrupted


def test_two_processes_for_one_folder_train_it_once(laboratory, tmp_path, uninterrupted, until):
    run = laboratory.declare(tmp_path)
    children = [laboratory.launch(run) for _ in range(2)]
    until(lambda: all(child.ended.is_set() for child in children))
    slow = -signal.SIGKILL  # who holds the folder for longer than another waits is taken for halted
    assert sorted(child.code for child in children) in ([0, 0], [slow, 0])
    assert came_to(run.folder) == uninterrupted


def test_runs_die_with_the_parent_of_the_training_processes(tmp_path, laboratory, until):
    run = laboratory.declare(tmp_path, tokens=64_000_000)
    nursery = Nursery(quiet_environment(tmp_path), log=tmp_path / "log")
    child = nursery.launch(run.folder, runtime=laboratory.runtime(), environment={})
    until(lambda: child.pid and read_progress(run.folder))
    os.kill(nursery.process.pid, signal.SIGKILL)
    until(child.ended.is_set)
    until(lambda: start_time(child.pid) is None)
    nursery.close()
    assert child.code is None, "nobody was left to say how it ended"
