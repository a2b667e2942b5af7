"""Warm parents: real ones that fork real children, which end, are signalled, and end with their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from knockout.errors import RunError
from knockout.services.processes import start_time
from knockout.services.warm import Child, ParentProcess, WarmParent

PARENT = """if True:
    import os, signal, time
    from knockout.services.forking import serve
    if (forked := serve({"gpus": 3})) is not None:
        os.dup2(2, 1)  # what its parent answers on is the parent's alone
        def end(*_):
            time.sleep(0.3)
            os._exit(5)
        if forked.request.get("heeds"):
            signal.signal(signal.SIGTERM, end)
        time.sleep(forked.request["seconds"])
        os._exit(forked.request["code"] if os.getsid(0) == os.getpid() and os.getppid() == forked.parent else 99)"""
FAILING = "raise SystemExit('there is no room')"
DEADLINE_SECONDS = 30.0


def start(code: str) -> ParentProcess:
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


@pytest.fixture
def parent() -> Iterator[WarmParent]:
    one = WarmParent(partial(start, PARENT), name="the parent")
    one.wait()
    yield one
    one.close()


def forked(parent: WarmParent, number: int, *, seconds: float, code: int = 0, heeds: bool = False) -> Child:
    child = Child(number)
    parent.launch(child, request={"seconds": seconds, "code": code, "heeds": heeds})
    assert child.begun.wait(DEADLINE_SECONDS)
    return child


def heeds(pid: int) -> bool:
    """Whether a process has a handler for SIGTERM (proc_pid_status(5))."""
    caught = Path("/proc", str(pid), "status").read_text().partition("SigCgt:")[2].split()[0]
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


def gone(pid: int | None) -> bool:
    """Whether a process ends soon."""
    assert pid is not None
    deadline = time.monotonic() + DEADLINE_SECONDS
    while start_time(pid) is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    return start_time(pid) is None


def test_a_child_leads_its_session_and_its_exit_code_is_told(parent: WarmParent):
    child = forked(parent, 0, seconds=0.0, code=7)
    assert child.ended.wait(DEADLINE_SECONDS)
    assert (parent.gpus, child.code) == (3, 7)
    assert parent.children == {}


def test_a_signal_ends_one_child_and_no_other(parent: WarmParent):
    one, other = forked(parent, 0, seconds=60.0), forked(parent, 1, seconds=60.0)
    parent.signal(one, number=signal.SIGTERM)
    assert one.ended.wait(DEADLINE_SECONDS)
    assert one.code == -signal.SIGTERM
    assert not other.ended.is_set()
    assert not parent.is_idle()


def test_who_waits_for_a_child_of_a_killed_parent_is_told(parent: WarmParent):
    child = forked(parent, 0, seconds=60.0)
    os.kill(parent.process.pid, signal.SIGKILL)
    assert child.ended.wait(DEADLINE_SECONDS)
    assert (child.code, parent.dead) == (None, True)
    late = Child(1)
    parent.launch(late, request={"seconds": 0.0, "code": 0})
    assert late.ended.wait(DEADLINE_SECONDS)
    assert late.pid is None
    assert child.pid is not None
    os.killpg(child.pid, signal.SIGKILL)  # this one was not asked to die with its parent


def test_a_parent_that_is_closed_asks_its_children_to_end_and_waits_for_them():
    parent = WarmParent(partial(start, PARENT), name="the parent")
    parent.wait()
    heeding, other = forked(parent, 0, seconds=60.0, heeds=True), forked(parent, 1, seconds=60.0)
    assert heeding.pid is not None
    while not heeds(heeding.pid):
        time.sleep(0.01)
    parent.end(heeding)  # asked twice it would end at once
    parent.close(grace_seconds=DEADLINE_SECONDS)
    assert (heeding.code, other.code) == (5, -signal.SIGTERM)


def test_a_parent_that_is_closed_without_a_grace_kills_its_children():
    parent = WarmParent(partial(start, PARENT), name="the parent")
    parent.wait()
    child = forked(parent, 0, seconds=60.0)
    parent.close()
    assert child.code is None
    assert gone(child.pid)


def test_a_parent_that_does_not_start_says_why(tmp_path):
    log = tmp_path / "log"

    def failing() -> ParentProcess:
        with log.open("ab") as sink:
            return subprocess.Popen(
                [sys.executable, "-c", FAILING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sink
            )

    parent = WarmParent(failing, name="the parent", log=log)
    with pytest.raises(RunError, match=f"the parent did not start: there is no room; see {log}"):
        parent.wait()
    parent.close()


def test_a_parent_that_is_killed_while_it_starts_names_the_signal():
    parent = WarmParent(partial(start, "import time; time.sleep(600)"), name="the parent")
    os.kill(parent.process.pid, signal.SIGKILL)
    with pytest.raises(RunError, match=r"^the parent did not start: it was ended by SIGKILL \(out of memory\?\)$"):
        parent.wait()
    parent.close()
