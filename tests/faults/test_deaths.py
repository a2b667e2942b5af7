"""The command dies by any signal: all that it started is gone within 15 seconds, and the next command finishes."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from agreeing import invariants
from commands import Home, kill, until

STUBBORN = ("--set", "tokens=64000000", "--set", "evaluations=10000")
"""A run without end, which has a checkpoint soon: each 100 steps."""


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGSEGV],
    ids=lambda number: number.name,
)
def test_nothing_outlives_a_command_that_a_signal_ended(home: Home, number: signal.Signals):
    process = home.begin("resumed", *STUBBORN)
    home.until_trainings(2, of=process)
    until(lambda: home.steps() > 0 or process.poll() is not None)
    deaf = home.trainings()[0]
    kill(deaf, signal.SIGSTOP)  # it heeds no SIGTERM, as a process that is stuck in the kernel does
    started = time.monotonic()
    kill(process.pid, number)
    home.until_gone()
    print(f"{number.name}: {time.monotonic() - started:.1f} s")
    code, said = home.finish(process)
    heeded = number in (signal.SIGTERM, signal.SIGHUP)
    assert code == (130 if heeded else -number), said
    assert "Traceback" not in said
    code, said = home.here("status")
    assert code == 0, said
    assert home.submission_states() == ["cancelled" if heeded else "failed"]
    invariants(home, complete=False)


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


def test_the_parent_of_the_runs_goes_with_a_command_that_is_killed_while_it_imports_also_when_halted(home: Home):
    folder = home.workspace.folder
    command = home.start(str(folder), code=WARMING)
    until(home.nursery, every=0.02)
    nursery = home.nursery()
    until(lambda: maps(nursery, "libtorch"), every=0.002)
    kill(nursery, signal.SIGSTOP)
    kill(command.pid)
    home.until_gone()
    assert (folder / "nursery.log").read_text() == ""
