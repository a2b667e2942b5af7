"""Ctrl-C and SIGTERM, once and again, at any moment of a command, from other processes and from a terminal."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from agreeing import invariants
from commands import ALONE, MAIN, Home, kill, until

STUBBORN = ("--set", "tokens=64000000", "--set", "evaluations=10000")
"""A run without end, which has a checkpoint soon: each 100 steps."""
STOPPING = "knockout: stopping; press Ctrl-C again to leave at once"
STOPPED = "knockout: stopped; the same command goes on from here"
LEFT = "knockout: left at once; the next command sets right what was cut off, and the same one goes on from here"
USER = "stopped by the user"
INT, TERM, HUP = signal.SIGINT, signal.SIGTERM, signal.SIGHUP


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal, as the kernel knows it."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def maps(pid: int, name: str) -> bool:
    """Whether a process has loaded a library."""
    return name in Path(f"/proc/{pid}/maps").read_text()


STARTING = {
    "SIGINT before a command is imported": (INT, lambda pid: catches(pid, TERM)),
    "SIGHUP before a command is imported": (HUP, lambda pid: catches(pid, TERM)),
    "SIGTERM while declarations are imported": (TERM, lambda pid: maps(pid, "pydantic_core")),
    "SIGINT while declarations are imported": (INT, lambda pid: maps(pid, "pydantic_core")),
    "SIGINT when they are and the database is not": (INT, lambda pid: maps(pid, "_sqlite3")),
}


@pytest.mark.parametrize(("number", "moment"), STARTING.values(), ids=STARTING.keys())
def test_a_signal_while_a_command_starts_gives_the_documented_ending(home: Home, number: signal.Signals, moment):
    process = home.begin("resumed")
    until(lambda: process.poll() is not None or moment(process.pid), every=0.001)
    kill(process.pid, number)
    code, said = home.finish(process)
    assert (code, said.strip().splitlines()[-1:]) == (130, [STOPPED])
    assert "Traceback" not in said
    home.until_gone()


def test_the_module_is_the_command_too(home: Home):
    said = subprocess.run([sys.executable, "-m", "knockout", "--version"], capture_output=True, text=True, check=True).stdout
    assert (0, said) == home.knockout("--version")


ENDS_IN_TWO_SECONDS = """if True:
    import time
    from knockout.cli.ending import stopping
    with stopping() as signals:
        signals.call(lambda: print("noted", flush=True))
        print("begun", flush=True)
        try:
            time.sleep(600)
        finally:
            time.sleep(2)
            print("ended", flush=True)"""
SEQUENCES: dict[str, tuple[tuple[tuple[float, signal.Signals], ...], bool]] = {
    "once": (((0.0, INT),), False),
    "twice within 0.1 s": (((0.0, INT), (0.1, INT)), False),
    "and SIGTERM within 0.1 s": (((0.0, INT), (0.1, TERM)), False),
    "a terminal that closes says so twice": (((0.0, HUP), (1.0, HUP)), False),
    "a terminal that closes after it": (((0.0, INT), (1.0, HUP)), False),
    "again after a second": (((0.0, INT), (1.0, INT)), True),
    "ten times within a second": (tuple((0.1, INT) for _ in range(10)), True),
    "SIGTERM again after a second": (((0.0, TERM), (1.0, TERM)), True),
}
"""The signals, each after so many seconds, and whether they cut an ending of two seconds short."""


@pytest.mark.parametrize(("signals", "short"), SEQUENCES.values(), ids=SEQUENCES.keys())
def test_one_signal_more_cuts_an_ending_short_unless_it_is_the_same_wish(home: Home, signals, short: bool):
    process = home.start(code=ENDS_IN_TWO_SECONDS)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    for wait, number in signals:
        time.sleep(wait)
        kill(process.pid, number)
    code, said = home.finish(process)
    assert said.count("noted") == 1
    assert said.count("knockout: stopping") == 1
    assert ("ended" in said, LEFT in said) == (not short, short), said
    assert code == 130 or not short


STUDIES: dict[str, tuple[tuple[tuple[float, signal.Signals], ...], bool]] = {
    "ten times within half a second": (tuple((0.0 if n == 0 else 0.04, INT) for n in range(10)), False),
    "and SIGTERM after a second": (((0.0, INT), (1.0, TERM)), True),
    "SIGTERM again and again": (tuple((0.05, TERM) for _ in range(30)), True),
}


def test_a_study_ends_honestly_and_when_cut_short_has_the_true_reason(home: Home):
    for name, (signals, short) in STUDIES.items():
        process = home.begin("resumed", *STUBBORN)
        home.until_trainings(2, of=process)
        kill(home.trainings()[0], signal.SIGSTOP)  # the ending takes the five seconds that a run has for its step
        for wait, number in signals:
            time.sleep(wait)
            kill(process.pid, number)
        code, said = home.finish(process)
        home.until_gone(seconds=5)
        lines = said.strip().splitlines()
        assert (code, lines[-1]) == (130, LEFT if short else STOPPED), (name, said)
        assert "Traceback" not in said
        assert (STOPPING in lines) == (signals[0][1] == INT), (name, said)
        assert home.submissions()[-1].state == ("running" if short else "cancelled"), name
        code, said = home.here("status")
        assert code == 0, said
        ended = home.submissions()[-1]
        assert (ended.state, ended.reason) == ("cancelled", USER), name
        assert {run.state for run in home.runs()} == {"cancelled"}
        assert all(run.reason is not None and run.reason.startswith(USER) for run in home.runs()), home.runs()
    invariants(home, complete=False)


@dataclass
class Terminal:
    """A command on a terminal of its own, whose foreground it has."""

    pid: int
    handle: int
    shown: bytearray = field(default_factory=bytearray)

    def press(self, keys: str) -> None:
        os.write(self.handle, keys.encode())

    @property
    def text(self) -> str:
        return self.shown.decode(errors="replace")

    def follow(self) -> None:
        """Read what is shown until the terminal is closed."""
        while True:
            try:
                self.shown += os.read(self.handle, 65536)
            except OSError:
                return  # its last process is gone

    def code(self) -> int:
        return code_of(self.pid)


def code_of(pid: int) -> int:
    """The exit code of a forked child, once it has ended."""
    statuses: list[int] = []

    def has_ended() -> bool:
        ended, status = os.waitpid(pid, os.WNOHANG)
        statuses.append(status)
        return ended == pid

    until(has_ended)
    return os.waitstatus_to_exitcode(statuses[-1])


@contextmanager
def terminal(home: Home, *arguments: str) -> Iterator[Terminal]:
    pid, handle = pty.fork()
    if pid == 0:
        os.chdir(home.project)
        os.execve(sys.executable, [sys.executable, "-c", MAIN, *arguments], {**home.variables, "TERM": "xterm"})
    opened = Terminal(pid, handle)
    reader = threading.Thread(target=opened.follow, daemon=True)
    reader.start()
    yield opened
    reader.join(10)
    os.close(handle)


def test_ctrl_c_at_a_terminal_stops_and_pressed_again_leaves_a_usable_one(home: Home):
    for again in (False, True):
        with terminal(home, "run", "resumed", *ALONE, *STUBBORN) as screen:
            until(lambda: len(home.trainings()) == 2, every=0.1)
            if again:
                kill(home.trainings()[0], signal.SIGSTOP)
            screen.press("\x03")
            until(lambda screen=screen: STOPPING in screen.text, seconds=5)
            if again:
                time.sleep(1)
                screen.press("\x03")
            assert screen.code() == 130
            home.until_gone(seconds=5)
        assert (LEFT if again else STOPPED) in screen.text
        assert "Traceback" not in screen.text
        assert screen.text.rfind("\x1b[?25h") > screen.text.rfind("\x1b[?25l"), "the cursor stayed hidden"
    code, said = home.here("status")
    assert code == 0, said
    assert [(one.state, one.reason) for one in home.submissions()] == [("cancelled", USER)] * 2
    invariants(home, complete=False)


def test_a_terminal_that_is_closed_ends_a_study_as_a_signal_does(home: Home, tmp_path: Path):
    """Its bars can no longer be drawn, which is no failure of the study."""
    errors = tmp_path / "errors.txt"
    pid, handle = pty.fork()
    if pid == 0:
        os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT, 0o600), 2)
        os.chdir(home.project)
        command = [sys.executable, "-c", MAIN, "run", "resumed", *ALONE, *STUBBORN]
        os.execve(sys.executable, command, {**home.variables, "TERM": "xterm"})
    until(lambda: len(home.trainings()) == 2, every=0.1)
    os.read(handle, 65536)
    os.close(handle)
    assert code_of(pid) == 130
    home.until_gone(seconds=15)
    assert "Traceback" not in errors.read_text()
    assert [(one.state, one.reason) for one in home.submissions()] == [("cancelled", USER)]
