"""A command that is halted for longer than its lease: another takes over, and what the first one brings late is refused."""

from __future__ import annotations

import signal
import sqlite3
import time
from contextlib import closing

import pytest
from agreeing import came_to, invariants
from commands import Home, kill, until
from killing import Laboratory

from knockout.ledger.leases import LEASE_SECONDS
from knockout.ledger.process import Owner, host_name, this_process
from knockout.ledger.tables import submissions


def let_time_pass(home: Home) -> None:
    """Set every sign of life back by more than a lease, as if so much time had passed."""
    with closing(sqlite3.connect(home.folder / "ledger.db", timeout=60)) as connection, connection:
        for table in ("runs", "submissions"):
            connection.execute(f"UPDATE {table} SET heartbeat = heartbeat - ?", (LEASE_SECONDS + 5,))


@pytest.mark.parametrize("whole", [False, True], ids=["the command alone", "with its runs"])
def test_a_halted_command_loses_its_leases_and_shares_the_result_when_it_wakes(home: Home, uninterrupted: Home, whole: bool):
    first = home.begin("resumed")
    until(lambda: home.steps() > 40)
    halted = [first.pid, *(home.alive() if whole else ())]
    for pid in halted:
        kill(pid, signal.SIGSTOP)
    time.sleep(0.2)
    let_time_pass(home)
    code, said = home.run("resumed")
    assert code == 0, said
    with home.ledger() as ledger:
        asked = {identity for one in ledger.submissions() for identity, *_ in ledger.asked(one.submission)}
        taken = {run.identity: run for run in ledger.runs(asked)}
        (given_up,) = [one for one in ledger.submissions() if one.state == "failed"]
    assert given_up.reason == f"process {first.pid} on {host_name()} gave no sign of life for {LEASE_SECONDS:g} s"
    for pid in halted:
        kill(pid, signal.SIGCONT)
    code, said = home.finish(first)
    assert code == 0, said
    assert "Traceback" not in said
    with home.ledger() as ledger:
        assert {run.identity: run for run in ledger.runs(taken)} == taken, "a late result was taken"
    assert home.submission_states() == ["done", "done"]
    invariants(home)
    for folder in (uninterrupted.folder / "runs").iterdir():
        assert came_to(home.folder / "runs" / folder.name) == came_to(folder)


def test_a_late_result_of_an_owner_that_lost_the_lease_is_refused(laboratory: Laboratory):
    name, late = laboratory.ask(seed=7), Owner("elsewhere", 1, "x")
    ledger = laboratory.ledger
    assert ledger.claim(name, owner=late)
    with ledger.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE runs SET heartbeat = heartbeat - 100 WHERE identity = ?", (name,))
    assert name in ledger.reconcile()
    assert ledger.claim(name, owner=this_process())
    assert not ledger.beat(name, owner=late)
    assert not ledger.finish(name, owner=late, state="done", reason=None, step=1, seconds=1.0, metrics={"val_loss": 0.0})
    assert ledger.finish(name, owner=this_process(), state="failed", reason="x", step=1, seconds=1.0, metrics={})


def test_a_submission_of_another_host_that_shows_no_sign_of_life_has_failed(laboratory: Laboratory):
    ledger, elsewhere = laboratory.ledger, Owner("elsewhere", 1, "x")
    for name in ("silent", "talking"):
        ledger.submit(name, study="x", plan="", owner=elsewhere, runs=[])
    with ledger.engine.begin() as connection:
        set_back = submissions.update().where(submissions.c.submission == "silent")
        connection.execute(set_back.values(heartbeat=submissions.c.heartbeat - 100))
    assert "silent" in ledger.reconcile()
    states = {one.submission: (one.state, one.reason) for one in ledger.submissions()}
    assert states["silent"] == ("failed", "process 1 on elsewhere gave no sign of life for 60 s")
    assert states["talking"] == ("running", None)
    ledger.beat_submission("silent", owner=elsewhere)
    assert {one.submission: one.state for one in ledger.submissions()}["silent"] == "running", "it was not dead after all"
    for name in ("silent", "talking"):
        ledger.conclude(name, state="cancelled", reason="over", facts=None)
