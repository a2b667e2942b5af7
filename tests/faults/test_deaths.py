"""The command dies by any signal: all that it started is gone within 15 seconds, and the next command finishes."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from agreeing import invariants
from place import Place, kill, until

STUBBORN = ("--set", "tokens=64000000")
"""A run without end."""


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGSEGV],
    ids=lambda number: number.name,
)
def test_nothing_outlives_a_command_that_a_signal_ended(place: Place, number: signal.Signals):
    process = place.begin("resumed", *STUBBORN)
    until(lambda: place.steps() > 0 and len(place.trainings()) == 2)
    deaf = place.trainings()[0]
    kill(deaf, signal.SIGSTOP)  # it heeds no SIGTERM, as a process that is stuck in the kernel does
    started = time.monotonic()
    kill(process.pid, number)
    until(lambda: place.alive() == {}, seconds=15)
    print(f"{number.name}: {time.monotonic() - started:.1f} s")
    code, said = place.finish(process)
    heeded = number in (signal.SIGTERM, signal.SIGHUP)
    assert code == (130 if heeded else -number), said
    assert "Traceback" not in said
    code, said = place.knockout("status")
    assert code == 0, said
    assert place.states() == ["cancelled" if heeded else "failed"]
    invariants(place, complete=False)


WARMING = """if True:
    import sys, time
    from pathlib import Path
    from knockout.services.environment import quiet_environment
    from knockout.training.launcher import Nursery
    folder = Path(sys.argv[1])
    nursery = Nursery(quiet_environment(folder), log=folder / "nursery.log")
    time.sleep(600)"""


def maps(pid: int | None, name: str) -> bool:
    """Whether a process has loaded a library."""
    try:
        return name in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False


def test_the_parent_of_the_runs_goes_with_a_command_that_is_killed_while_it_imports_also_when_halted(place: Place):
    folder = place.workspace.folder
    command = place.start(str(folder), code=WARMING)
    until(lambda: maps(place.nursery(), "libtorch"), every=0.002)
    nursery = place.nursery()
    kill(nursery, signal.SIGSTOP)
    kill(command.pid)
    until(lambda: place.alive() == {}, seconds=15)
    assert (folder / "nursery.log").read_text() == ""


def test_a_signal_during_the_start_of_a_command_gives_the_documented_exit_code(place: Place):
    process = place.begin("resumed")
    until(lambda: maps(process.pid, "pydantic_core") or process.poll() is not None, every=0.002)
    kill(process.pid, signal.SIGTERM)
    code, said = place.finish(process)
    assert (code, said.strip().splitlines()[-1:]) == (130, ["knockout: stopped; the same command goes on from here"])
    assert "Traceback" not in said


def test_further_signals_while_a_command_ends_change_neither_its_exit_code_nor_its_record(place: Place):
    process = place.begin("resumed", *STUBBORN)
    until(lambda: len(place.trainings()) == 2)
    started = time.monotonic()
    while process.poll() is None:
        kill(process.pid, signal.SIGTERM)
        time.sleep(0.05)
    print(f"gone after {time.monotonic() - started:.1f} s")
    code, said = place.finish(process)
    assert (code, "Traceback" in said) == (130, False), said
    assert place.states() == ["cancelled"]
    invariants(place, complete=False)
