"""The ledger under real processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from knockout.errors import InputError, WorkspaceError
from knockout.ledger.process import Owner, this_process
from knockout.ledger.store import Ledger
from knockout.ledger.tables import LedgerLost
from knockout.ledger.workspace import Workspace, open_workspace, write_atomically

GONE = Owner(host=this_process().host, pid=2**22 + 1, started="never")


def ask(name: str) -> dict:
    return {
        "identity": name, "meaning": {"seed": 0}, "planned_steps": 10, "flops": 1.0, "variant": "baseline", "size": "pico",
        "seed": 0, "role": "judged",
    }  # fmt: skip


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return open_workspace(tmp_path / "home")


@pytest.fixture
def ledger(workspace: Workspace) -> Iterator[Ledger]:
    opened = Ledger(workspace)
    yield opened
    opened.close()


def submit(ledger: Ledger, *names: str, submission: str = "s1", owner: Owner | None = None) -> None:
    ledger.submit(submission, study="x", plan="", owner=owner or this_process(), runs=[ask(name) for name in names])


def finish(ledger: Ledger, name: str, *, owner: Owner, state: str = "done") -> bool:
    return ledger.finish(name, owner=owner, state=state, reason=None, step=10, seconds=1.0, metrics={"val_loss": 1.5})


def state_of(ledger: Ledger, name: str) -> str:
    run = ledger.run(name)
    assert run is not None
    return run.state


def test_a_run_is_held_by_one_owner_and_finished_once(ledger: Ledger):
    submit(ledger, "a")
    me, other = this_process(), Owner("elsewhere", 1, "x")
    assert ledger.claim("a", owner=me)
    assert not ledger.claim("a", owner=other)
    assert not finish(ledger, "a", owner=other)
    assert finish(ledger, "a", owner=me)
    assert not finish(ledger, "a", owner=me)
    assert not ledger.claim("a", owner=me)
    run = ledger.run("a")
    assert run is not None
    assert (run.state, run.metrics, run.attempts) == ("done", {"val_loss": 1.5}, 1)


@pytest.mark.parametrize("state", ["failed", "cancelled", "timed-out"])
def test_what_has_no_result_can_be_claimed_again(ledger: Ledger, state: str):
    submit(ledger, "a")
    ledger.claim("a", owner=this_process())
    finish(ledger, "a", owner=this_process(), state=state)
    assert ledger.claim("a", owner=this_process())


def test_a_known_run_keeps_its_state_when_another_study_asks_for_it(ledger: Ledger):
    submit(ledger, "a")
    ledger.claim("a", owner=this_process())
    finish(ledger, "a", owner=this_process())
    submit(ledger, "a", "b", submission="s2")
    assert (state_of(ledger, "a"), state_of(ledger, "b")) == ("done", "planned")


def test_leases_of_dead_processes_are_taken_back_and_late_results_refused(ledger: Ledger):
    submit(ledger, "a", "b", owner=GONE)
    ledger.claim("a", owner=GONE)
    submit(ledger, "c", submission="s2")
    ledger.claim("c", owner=this_process())
    assert ledger.reconcile() == ["a", "s1"]
    assert not finish(ledger, "a", owner=GONE)
    assert [state_of(ledger, name) for name in "abc"] == ["failed", "planned", "leased"]
    assert {item.submission: item.state for item in ledger.submissions()} == {"s1": "failed", "s2": "running"}


def test_a_pid_that_is_used_again_does_not_keep_a_lease(ledger: Ledger):
    submit(ledger, "a")
    ledger.claim("a", owner=Owner(this_process().host, os.getpid(), "another start"))
    assert ledger.reconcile() == ["a"]


def test_a_lease_of_another_host_lives_by_its_heartbeat(ledger: Ledger, monkeypatch: pytest.MonkeyPatch):
    submit(ledger, "a")
    ledger.claim("a", owner=Owner("elsewhere", 1, "x"))
    assert ledger.reconcile() == []
    monkeypatch.setattr("knockout.ledger.leases.LEASE_SECONDS", -1.0)
    assert ledger.reconcile() == ["a", "s1"]


def _claim_all(folder: Path, names: list[str], barrier: object, results: object) -> None:
    barrier.wait()  # type: ignore[attr-defined]
    ledger = Ledger(open_workspace(folder))
    ledger.submit(f"s{os.getpid()}", study="x", plan="", owner=this_process(), runs=[])
    for name in names:
        ledger.ask(f"s{os.getpid()}", runs=[ask(name)])
    results.put([name for name in names if ledger.claim(name, owner=this_process())])  # type: ignore[attr-defined]


def test_six_processes_on_a_new_workspace_claim_each_run_once(tmp_path: Path):
    context = multiprocessing.get_context("spawn")
    names = [f"run{i}" for i in range(20)]
    barrier, results = context.Barrier(6), context.Queue()
    processes = [context.Process(target=_claim_all, args=(tmp_path / "w", names, barrier, results)) for _ in range(6)]
    for process in processes:
        process.start()
    claimed = [name for _ in processes for name in results.get(timeout=60)]
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 6
    assert sorted(claimed) == sorted(names)


def test_an_owner_is_dead_once_its_process_is(ledger: Ledger):
    code = """if True:
        import time
        from knockout.ledger.process import this_process
        me = this_process()
        print(me.pid, me.started, flush=True)
        time.sleep(60)"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid, started = process.stdout.readline().split()
        owner = Owner(this_process().host, int(pid), started)
        assert owner.alive()
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert owner.alive() is False


def test_a_run_is_found_by_the_start_of_its_identity(ledger: Ledger):
    submit(ledger, "abc", "abd")
    assert ledger.find("abc").identity == "abc"
    for start in ("ab", "x", "%"):
        with pytest.raises(InputError, match=f"begins with '{start}'"):
            ledger.find(start)


def test_a_workspace_that_cannot_be_made_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkspaceError, match="cannot be written: Not a directory"):
        open_workspace(tmp_path / "file" / "home")


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "x"
    write_atomically(path, text="old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WorkspaceError, match="No space"):
        write_atomically(path, text="new")
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["x"]


def test_a_pruned_run_is_no_result_and_may_be_claimed_by_who_wants_one(ledger: Ledger):
    submit(ledger, "a")
    me = this_process()
    assert ledger.claim("a", owner=me)
    assert finish(ledger, "a", owner=me, state="pruned")
    run = ledger.run("a")
    assert run is not None
    assert not run.finished
    assert ledger.claim("a", owner=me)
    assert state_of(ledger, "a") == "leased"


def test_a_file_that_took_the_ledgers_place_is_not_written_to(ledger: Ledger):
    submit(ledger, "a")
    ledger.workspace.ledger.rename(ledger.workspace.folder / "kept.db")
    with pytest.raises(LedgerLost, match=r"ledger\.db was removed while this command was using it"):
        ledger.claim("a", owner=this_process())
    ledger.workspace.ledger.write_bytes(b"")
    with pytest.raises(LedgerLost, match=r"ledger\.db is another file than it was while this command was using it"):
        ledger.claim("a", owner=this_process())
    assert ledger.workspace.ledger.read_bytes() == b""
    (ledger.workspace.folder / "kept.db").rename(ledger.workspace.ledger)
    assert ledger.claim("a", owner=this_process()), "it was only mislaid"
