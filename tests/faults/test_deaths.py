"""The command dies by any signal: all that it started is gone within 15 seconds, and the next command finishes."""

from __future__ import annotations

import signal
import time

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
