"""Two machines, each with a workspace of its own, that have a database and a store in common."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from commands import ENDLESS


@pytest.fixture
def other(home, tmp_path: Path, database, monkeypatch: pytest.MonkeyPatch):
    """The other machine; both find the database and the store in their environment."""
    monkeypatch.setenv("KNOCKOUT_STORE", f"file://{tmp_path / 'store'}")
    return type(home)(tmp_path / "other", home.project, home.started)


def test_what_one_machine_trained_the_other_reuses_and_reports(home, other):
    assert home.run("small")[0] == 0
    code, said = other.run("small")
    assert code == 0, said
    assert {run.attempts for run in other.runs()} == {1}
    assert sorted(path.name for path in (other.folder / "runs").glob("*/result.json")) == ["result.json"] * 2
    assert not list(home.folder.glob("ledger.db"))
    code, said = other.here("doctor")
    assert (code, said.startswith("nothing is wrong")) == (0, True), said


def test_a_machine_that_is_lost_leaves_its_runs_to_the_other(home, other, until):
    begun = home.begin("small", *ENDLESS)
    until(lambda: home.newest_step() > 0 or begun.poll() is not None)
    os.killpg(begun.pid, signal.SIGKILL)
    begun.wait()
    until(lambda: not [line for line in home.alive().values() if "nursery" in line])
    code, said = other.run("small", *ENDLESS, "--run-seconds", "2")
    assert code == 1, said
    assert {run.attempts for run in other.runs()} == {2}
    assert {run.state for run in other.runs()} == {"timed-out"}
