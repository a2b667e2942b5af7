"""A parent of training processes that is forked ahead, in a process that has imported what trains and will start threads.

The invariant: it is forked while its owner has one thread, and taken once; whoever needs another starts a fresh one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

POLL_SECONDS = 0.01
_spare: list[Spare] = []


class Spare:
    """What `subprocess.Popen` is for a fresh parent: a child of this process, with pipes."""

    def __init__(self, pid: int, *, requests: int, answers: int) -> None:
        self.pid = pid
        self.stdin = os.fdopen(requests, "wb")
        self.stdout = os.fdopen(answers, "rb")

    def kill(self) -> None:
        """End it at once."""
        os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended; its exit code, or minus the signal. Raises subprocess.TimeoutExpired."""
        deadline = time.monotonic() + timeout if timeout is not None else None
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("the parent of the training processes", timeout or 0.0)
            time.sleep(POLL_SECONDS)


def fork_spare() -> None:
    """Fork a parent of training processes, and keep it for the first nursery of this process."""
    request_end, requests = os.pipe()
    answers, answer_end = os.pipe()
    owner, pid = os.getpid(), os.fork()
    if pid == 0:
        try:
            for end in (requests, answers):
                os.close(end)
            _become(request_end, answer_end, owner=owner)
        finally:
            os._exit(1)
    for end in (request_end, answer_end):
        os.close(end)
    _spare.append(Spare(pid, requests=requests, answers=answers))


def take_spare(environment: Mapping[str, str], *, log: Path) -> Spare | None:
    """The parent that was forked ahead, with its environment and its log; None where there is none, or no longer."""
    if not _spare:
        return None
    spare = _spare.pop()
    spare.stdin.write(json.dumps({"environment": dict(environment), "log": str(log)}).encode() + b"\n")
    spare.stdin.flush()
    return spare


def drop_spare() -> None:
    """End a parent that nobody took."""
    while _spare:
        spare = _spare.pop()
        spare.stdin.close()
        spare.stdout.close()
        spare.wait()


def _become(requests: int, answers: int, *, owner: int) -> None:
    """In the forked process: wait to be told what it is for, then serve until there is no owner."""
    from knockout.training.dying import die_with
    from knockout.training.nursery import main  # torch and Lightning: there already

    os.setsid()
    die_with(owner)
    os.dup2(requests, 0)
    os.dup2(answers, 1)
    told = _first_line()
    if told:
        order = json.loads(told)
        os.environ.clear()
        os.environ.update(order["environment"])
        os.dup2(os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666), 2)
        main()
    os._exit(0)


def _first_line() -> bytes:
    """One line of standard input, and nothing of the next; empty where it ended before."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(0, 1)):
        line += byte
    return line if line.endswith(b"\n") else b""
