"""The queue in front of the mirror: training never waits, never sees an error, and is told in the end."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from knockout.errors import WorkspaceError
from knockout.tracking.background import BackgroundMirror, Handle
from knockout.tracking.inspection import database
from knockout.tracking.mirror import Mirror
from knockout.tracking.store import connect


class ScriptedMirror:
    """Stands in the place of `Mirror`: fails as it is told to, and notes what came through."""

    def __init__(self, *, failures: dict[str, list[Exception]] | None = None, gate: threading.Event | None = None) -> None:
        self.failures = failures or {}
        self.gate = gate
        self.calls: list[tuple[Any, ...]] = []

    def connected(self, workspace: Path) -> Mirror:
        return cast(Mirror, self)

    def _come(self, verb: str, *told: Any) -> str:
        if self.gate is not None:
            self.gate.wait(30)
        if self.failures.get(verb):
            raise self.failures[verb].pop(0)
        self.calls.append((verb, *told))
        return f"id-of-{verb}"

    def open_submission(self, study: str, **told: Any) -> str:
        return self._come("open_submission", study)

    def open_run(self, parent: str, **told: Any) -> str:
        return self._come("open_run", parent)

    def metrics(self, run_id: str, rows: Any, **told: Any) -> None:
        self._come("metrics", run_id, tuple(rows))

    def close_run(self, run_id: str, **told: Any) -> None:
        self._come("close_run", run_id)


def submit(mirror: BackgroundMirror) -> Handle:
    return mirror.open_submission("s", submission="s-1", tags={}, params={}, artifacts={})


def start(mirror: BackgroundMirror, parent: Handle | str) -> Handle:
    return mirror.open_run(parent, name="base · pico · s0", identity="a" * 16, tags={}, params={}, split={}, corpus={})


def finish(mirror: BackgroundMirror, run: Handle) -> None:
    mirror.close_run(run, state="done", reason="", final={"val_loss": 2.5}, artifacts={})


def test_what_is_queued_reaches_the_real_store(workspace: Path) -> None:
    mirror = BackgroundMirror(workspace)
    run = start(mirror, submit(mirror))
    mirror.metrics(run, (("train_loss", step, 1.0, 0.0) for step in range(5)))
    finish(mirror, run)
    assert mirror.close(timeout_seconds=60) is None

    written = connect(workspace).get_run(run.result())
    assert written.info.status == "FINISHED"
    assert written.data.metrics == {"train_loss": 1.0, "final/val_loss": 2.5}


def test_a_run_can_be_used_before_it_exists(tmp_path: Path) -> None:
    gate = threading.Event()
    scripted = ScriptedMirror(gate=gate)
    mirror = BackgroundMirror(tmp_path, connect=scripted.connected)
    run = start(mirror, submit(mirror))
    mirror.metrics(run, [("train_loss", 0, 1.0, 0.0)])
    assert not run.done()
    gate.set()

    assert mirror.close() is None
    assert scripted.calls == [
        ("open_submission", "s"),
        ("open_run", "id-of-open_submission"),
        ("metrics", "id-of-open_run", (("train_loss", 0, 1.0, 0.0),)),
    ]


def test_a_passing_trouble_is_tried_again(tmp_path: Path) -> None:
    scripted = ScriptedMirror(failures={"open_submission": [RuntimeError("database is locked")] * 2})
    mirror = BackgroundMirror(tmp_path, connect=scripted.connected)
    handle = submit(mirror)
    assert mirror.close() is None
    assert handle.result() == "id-of-open_submission"


def test_what_failed_for_good_is_named_once_with_what_depended_on_it(tmp_path: Path) -> None:
    scripted = ScriptedMirror(failures={"open_run": [ValueError("a quotation mark\nand more")]})
    mirror = BackgroundMirror(tmp_path, connect=scripted.connected)
    run = start(mirror, submit(mirror))
    for _ in range(3):
        mirror.metrics(run, [])
    finish(mirror, run)

    assert mirror.close() == (
        "not mirrored to MLflow (the run folders hold it all): run base · pico · s0: ValueError: a quotation mark; "
        "metrics (3 times), end of a run: its run could not be opened"
    )
    assert scripted.calls == [("open_submission", "s")]


def test_a_store_that_cannot_be_opened_is_told_in_one_sentence(tmp_path: Path) -> None:
    def refuse(workspace: Path) -> Mirror:
        raise WorkspaceError("mlflow.db is damaged: build it again")

    mirror = BackgroundMirror(tmp_path, connect=refuse)
    parent = submit(mirror)
    runs = [start(mirror, parent) for _ in range(20)]
    for number, run in enumerate(runs):
        mirror.perform(f"job {number}", lambda mirror: None)
        mirror.metrics(run, [])
        finish(mirror, run)
    assert mirror.close(timeout_seconds=20) == (
        "not mirrored to MLflow (the run folders hold it all): submission s-1, run base · pico · s0 (20 times), job 0 "
        "and 21 more: mlflow.db is damaged: build it again"
    )
    assert all(run.cancelled() for run in runs)


def test_a_store_that_hangs_does_not_hold_up_the_end(tmp_path: Path) -> None:
    gate = threading.Event()
    mirror = BackgroundMirror(tmp_path, connect=ScriptedMirror(gate=gate).connected)
    run = start(mirror, submit(mirror))
    warning = mirror.close(timeout_seconds=0.2)
    assert warning is not None
    assert "submission s-1, run base · pico · s0: MLflow's store did not take it within 0 s" in warning
    assert run.cancelled()
    gate.set()


@pytest.mark.parametrize("room", ["knockout.tracking", "knockout.services"])
def test_importing_the_room_imports_no_engine(room: str) -> None:
    code = f"import sys, {room}; sys.exit(bool({{'mlflow', 'prefect', 'pandas', 'sqlalchemy'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("becomes", ["nothing", "a folder", "another file"])
def test_a_store_that_is_taken_away_meanwhile_is_told(workspace: Path, becomes: str) -> None:
    mirror = BackgroundMirror(workspace)
    submit(mirror).result(timeout=60)
    path = database(workspace)
    path.unlink()
    if becomes == "a folder":
        path.mkdir()
    elif becomes == "another file":
        path.write_text("text")
    warning = mirror.close()
    assert warning is not None
    assert "its database was removed or replaced meanwhile; `knockout doctor` tells what is missing" in warning
