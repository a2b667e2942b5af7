"""What stands in a run's folder in the place of something else, what was altered there, and what the system refuses."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest
from bench import Bench

from knockout.errors import RunError, WorkspaceError
from knockout.ledger.aside import set_aside
from knockout.ledger.kinds import found
from knockout.ledger.process import this_process
from knockout.ledger.store import Ledger
from knockout.ledger.workspace import Workspace, write_json
from knockout.training.believing import contradiction
from knockout.training.execute import Execution
from knockout.training.folder import FILES, misfits
from knockout.training.progress import PROGRESS, encode_progress, read_progress
from knockout.training.result import read_result
from knockout.training.spec import CHECKPOINTS, LOG, MEANING, METRICS, RESULT, SEGMENTS, WEIGHTS
from knockout.training.trained import load_network
from knockout.training.untold import reconcile, take_up

SHORT = {"tokens": 64 * 20, "evaluations": 2}


def lost(bench: Bench) -> set[str]:
    return {path.name for path in (bench.workspace.folder / "lost+found").glob("*")} - {"log.txt"}


def test_what_is_of_another_kind_is_moved_away_and_the_run_is_trained(bench: Bench, tmp_path: Path):
    run, outside = bench.ask(**SHORT), tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    for name in FILES:
        if name != MEANING:
            (run.folder / name).mkdir()
    (run.folder / MEANING).unlink()
    (run.folder / MEANING).symlink_to(outside / "kept")
    (run.folder / SEGMENTS).write_text("no folder")
    (run.folder / CHECKPOINTS).symlink_to(outside)
    wrong = {path.name for path, _ in misfits(run.folder)}
    assert wrong == {*FILES, SEGMENTS, CHECKPOINTS}
    ended = bench.execute(run)
    assert (ended.run.state, ended.run.reason) == ("done", None)
    assert sum("it was moved to lost+found/" in note for note in bench.notes) == len(wrong)
    assert lost(bench) == {f"runs-{run.identity}-{name}" for name in wrong}
    assert [path.name for path in outside.iterdir()] == ["kept"]
    assert list(misfits(run.folder)) == []


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_a_checkpoint_or_segment_that_is_no_file_is_moved_away(bench: Bench, tmp_path: Path, kind: str):
    run = bench.ask(**SHORT)
    places = [run.folder / CHECKPOINTS / f"{10:010d}.pt", run.folder / SEGMENTS / f"{10:010d}.parquet"]
    for path in places:
        path.parent.mkdir()
        path.mkdir() if kind == "folder" else path.symlink_to(tmp_path / "nowhere")
    assert bench.execute(run).run.state == "done"
    assert len(lost(bench)) == 2


def test_a_run_whose_folder_is_a_link_is_trained_in_a_folder_of_its_own(bench: Bench, tmp_path: Path):
    run, outside = bench.ask(**SHORT), tmp_path / "outside"
    run.folder.rename(outside)
    run.folder.symlink_to(outside)
    assert bench.execute(run).run.state == "done"
    assert found(run.folder) == "folder"
    assert [path.name for path in outside.iterdir()] == [MEANING]
    assert lost(bench) == {f"runs-{run.identity}"}


def test_a_done_run_whose_result_is_a_folder_is_trained_again(bench: Bench):
    run = bench.ask(**SHORT)
    bench.execute(run)
    (run.folder / RESULT).unlink()
    (run.folder / RESULT).mkdir()
    assert read_result(run.folder) is None
    again = bench.execute(run)
    assert (again.reused, again.run.state, again.run.attempts) == (False, "done", 2)


def test_a_file_that_is_reached_through_a_link_is_none_of_the_runs(bench: Bench, tmp_path: Path):
    run = bench.ask(**SHORT)
    bench.execute(run)
    shutil.move(run.folder / WEIGHTS, tmp_path / WEIGHTS)
    (run.folder / WEIGHTS).symlink_to(tmp_path / WEIGHTS)
    assert read_result(run.folder) is None


def test_what_the_system_refuses_is_the_reason_of_a_failed_run_and_the_lease_is_given_back(bench: Bench):
    run = bench.ask(**SHORT)
    (run.folder / LOG).mkdir()
    (bench.workspace.folder / "lost+found").write_text("in the way")
    ended = bench.execute(run).run
    assert (ended.state, ended.owner) == ("failed", None)
    assert ended.reason is not None
    assert f"{bench.workspace.folder / 'lost+found'}: a file stands where a folder belongs" in ended.reason
    (bench.workspace.folder / "lost+found").unlink()
    assert bench.execute(run).run.state == "done"


def test_an_error_of_the_system_while_a_run_is_watched_ends_its_process_too(bench: Bench):
    run = bench.ask(tokens=64_000_000)

    def early() -> str | None:
        if read_progress(run.folder):
            raise OSError(5, "Input/output error", "/somewhere")
        return None

    ended = bench.execute(run, early=early).run
    assert (ended.state, ended.reason, ended.owner) == ("failed", "/somewhere: Input/output error", None)
    assert all(child.ended.is_set() for child in bench.laboratory.nursery.children.values())


@pytest.mark.parametrize("harm", ["folder removed", "checkpoint's place taken"])
def test_only_a_disk_that_refuses_is_called_full(bench: Bench, until, harm: str):
    run, ends = bench.ask(tokens=64_000_000, evaluations=10_000), list[Execution]()
    thread = threading.Thread(target=lambda: ends.append(bench.execute(run)))
    thread.start()
    until(lambda: read_progress(run.folder))
    if harm == "folder removed":
        shutil.rmtree(run.folder, ignore_errors=True)
        words = f"{run.folder / LOG} was taken away while it worked"
    else:
        step = read_progress(run.folder)[0]  # pyright: ignore[reportOptionalSubscript]
        for ahead in range(step // 100 * 100, step + 10_000, 100):
            (run.folder / CHECKPOINTS / f"{ahead:010d}.pt").mkdir(parents=True, exist_ok=True)
        words = "cannot be written: Is a directory; see "
    thread.join(60)
    reason = ends[0].run.reason or ""
    assert ends[0].run.state == "failed"
    assert words in reason, reason
    assert "disk is full" not in reason


def test_progress_of_an_earlier_attempt_is_not_shown(bench: Bench):
    run, seen = bench.ask(**SHORT), []
    (run.folder / PROGRESS).write_bytes(encode_progress(step=9_999, train_loss=1.0))

    def early() -> None:
        seen.append(read_progress(run.folder))

    bench.execute(run, early=early)
    assert seen[0] == (9_999, 1.0), "until a process begins it says how far the run had come"
    assert all(one is None or one[0] <= 20 for one in seen[1:])
    assert read_progress(run.folder) is None, "a run that is done makes no progress"


@pytest.fixture
def forgotten(bench: Bench) -> tuple[Bench, object, dict[str, float]]:
    """A done run whose ledger was lost; the bench has a new one, which was asked for the run."""
    run = bench.ask(**SHORT)
    measured = dict(bench.execute(run).run.metrics)
    bench.ledger.close()
    for path in bench.workspace.folder.glob("ledger.db*"):
        path.unlink()
    bench.ledger = Ledger(bench.workspace)
    ask = {"identity": run.identity, "meaning": run.meaning, "planned_steps": run.num_steps, "flops": 1.0,
           "variant": "baseline", "size": "pico", "seed": 0, "role": "judged"}  # fmt: skip
    bench.ledger.submit("again", study="x", plan="", owner=this_process(), runs=[ask])
    return bench, run, measured


def alter(folder: Path, **values: float) -> None:
    result = json.loads((folder / RESULT).read_text())
    write_json(folder / RESULT, data={**result, "metrics": {**result["metrics"], **values}})


def test_a_result_that_the_ledger_lost_is_taken_up(forgotten):
    bench, run, measured = forgotten
    assert take_up(bench.ledger, run.identity)
    known = bench.said(run)
    assert (known.state, known.metrics, known.step, known.attempts) == ("done", measured, 20, 0)
    assert not take_up(bench.ledger, run.identity)
    assert bench.execute(run).reused


def test_a_result_that_the_ledger_lost_is_reused_by_whoever_claims_the_run(forgotten):
    bench, run, measured = forgotten
    ended = bench.execute(run)
    assert (ended.reused, bench.notes, ended.run.metrics) == (True, [], measured)


@pytest.mark.parametrize("name", ["val_loss", "train_loss", "tokens_per_second", "made_up"])
def test_an_altered_result_that_the_ledger_lost_is_kept_aside_and_the_run_is_trained_again(forgotten, name: str):
    bench, run, measured = forgotten
    alter(run.folder, **{name: 1.0126})
    assert not take_up(bench.ledger, run.identity)
    ended = bench.execute(run)
    assert (ended.reused, ended.run.state) == (False, "done")
    assert {k: v for k, v in ended.run.metrics.items() if "loss" in k} == {k: v for k, v in measured.items() if "loss" in k}
    (note,) = bench.notes
    assert name in note
    assert "trained again" in note
    assert "1.0126" in (bench.workspace.folder / "lost+found" / f"runs-{run.identity}" / RESULT).read_text()


def test_an_altered_result_of_a_dead_owner_is_not_entered(forgotten):
    bench, run, _ = forgotten
    bench.ledger.claim(run.identity, owner=this_process())
    bench.ledger.finish(
        run.identity, owner=this_process(), state="failed", step=0, seconds=0.0, metrics={},
        reason="process 1 on x died while it held the run",
    )  # fmt: skip
    alter(run.folder, val_loss=1.0)
    reconcile(bench.ledger)
    assert bench.said(run).state == "failed"


def test_a_result_agrees_with_its_own_series(forgotten):
    _, run, _ = forgotten
    result = read_result(run.folder)
    assert result is not None
    assert contradiction(run.folder, result=result) is None
    without = {**result, "files": {WEIGHTS: result["files"][WEIGHTS]}}
    assert contradiction(run.folder, result=without) is not None
    assert contradiction(run.folder, result={**result, "step": 10}) is not None
    assert contradiction(run.folder, result={**result, "outcome": "diverged"}) is not None
    assert contradiction(run.folder, result={**result, "metrics": None}) is not None
    assert METRICS in result["files"]
    for step in (1, 19, 20, 21):
        lie = {**result, "outcome": "diverged", "metrics": {}, "step": step, "reason": "loss is nan"}
        assert contradiction(run.folder, result=lie) is not None
    other = run.folder.with_name("f" * 16)
    shutil.copytree(run.folder, other)
    assert contradiction(other, result=result) == f"its metrics are those of run {run.identity}"


def test_the_whole_result_of_another_run_is_kept_aside_and_the_run_is_trained(bench: Bench):
    one, other = bench.ask(**SHORT), bench.ask(**{**SHORT, "seed": 1})
    measured = dict(bench.execute(one).run.metrics)
    shutil.copytree(one.folder, other.folder, dirs_exist_ok=True)
    ended = bench.execute(other)
    assert (ended.reused, ended.run.state) == (False, "done")
    assert ended.run.metrics["val_loss"] != measured["val_loss"]
    (note,) = bench.notes
    assert f"its metrics are those of run {one.identity}; the result was moved to lost+found/" in note


def test_weights_of_another_run_are_not_loaded_as_this_ones(bench: Bench):
    one, other = bench.ask(**SHORT), bench.ask(**{**SHORT, "seed": 1})
    bench.execute(one)
    for path in one.folder.iterdir():
        if path.name != MEANING and path.is_file():
            shutil.copy(path, other.folder)
    with pytest.raises(RunError, match=f"its metrics are those of run {one.identity}"):
        load_network(other.folder)


def test_nothing_is_moved_through_a_link(tmp_path: Path):
    workspace, outside = Workspace(tmp_path / "home"), tmp_path / "outside"
    for folder in (workspace.folder, outside):
        folder.mkdir()
    (outside / "kept").write_text("kept")
    (workspace.folder / "runs").symlink_to(outside)
    with pytest.raises(WorkspaceError, match="no folder of the workspace"):
        set_aside(workspace.folder / "runs" / "kept", workspace=workspace, why="x")
    (workspace.folder / "lost+found").symlink_to(outside)
    (workspace.folder / "other").write_text("x")
    with pytest.raises(WorkspaceError, match="a link stands where a folder belongs"):
        set_aside(workspace.folder / "other", workspace=workspace, why="x")
    assert [path.name for path in outside.iterdir()] == ["kept"]
