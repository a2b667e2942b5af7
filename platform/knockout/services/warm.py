"""The owner's side of a warm parent: have it fork children, signal them, learn how they ended.

The invariant: whoever waits for a child is told when it has ended, also when its parent died and it with it.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

from knockout.errors import RunError
from knockout.services.processes import signal_in_words

START_SECONDS = 120.0


class ParentProcess(Protocol):
    """A warm parent as the process that it is: a `subprocess.Popen` with pipes, or what does the same."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    @property
    def stdin(self) -> IO[bytes] | None:
        """Where it hears requests."""
        ...

    @property
    def stdout(self) -> IO[bytes] | None:
        """Where it answers."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended. Raises subprocess.TimeoutExpired."""
        ...


@dataclass
class Child:
    """A process that a warm parent forked."""

    number: int
    pid: int | None = None
    code: int | None = None
    """Exit code, or minus the signal that ended it; None while it runs."""
    told: bool = False
    """Whether it was asked to end."""
    begun: threading.Event = field(default_factory=threading.Event)
    """Set when its process id is known, or there will be none."""
    ended: threading.Event = field(default_factory=threading.Event)


class WarmParent:
    """One warm parent, started in the background, and the children that it has forked."""

    def __init__(self, start: Callable[[], ParentProcess], *, name: str, log: Path | None = None) -> None:
        """`name` is what messages call it, and `log` the file that it writes to; None: its owner's standard error."""
        self.name = name
        self.log = log
        self.children: dict[int, Child] = {}
        self.lock = threading.Lock()
        self.ready = threading.Event()
        """Set when it can fork, or never will."""
        self.ready_once = False
        self.gpus = 0
        self.dead = False
        self.said_before = log.stat().st_size if log is not None and log.exists() else 0
        started: Future[ParentProcess] = Future()
        # The kernel kills the parent when the thread that started it ends: that is the one which listens to it to its end.
        self.reader = threading.Thread(target=self._live, args=(start, started), name="warm", daemon=True)
        self.reader.start()
        self.process = started.result()

    def wait(self) -> None:
        """Wait until it is ready. Raises RunError when it did not come up."""
        self.ready.wait(START_SECONDS)
        if not self.ready_once:
            late = f"it was not ready within {START_SECONDS:g} s; is the machine busy?"
            why = self._last_word() or (self._end() if self.dead else late)
            raise RunError(f"{self.name} did not start: {why}" + (f"; see {self.log}" if self.log is not None else ""))

    def launch(self, child: Child, *, request: dict[str, object]) -> None:
        """Have it fork a child; one that it can no longer fork has ended at once, without a code."""
        with self.lock:
            self.children[child.number] = child
        self._send({"id": child.number, **request})
        if self.dead:
            _bury(child)

    def end(self, child: Child) -> None:
        """Ask a child to end; a second time would cut its ending short."""
        if not child.told:
            child.told = True
            self.signal(child, number=signal.SIGTERM)

    def signal(self, child: Child, *, number: int) -> None:
        """Signal the group of a child of its own; one of an earlier parent has ended with that."""
        if child.number in self.children:
            self._send({"id": child.number, "signal": int(number)})

    def is_idle(self) -> bool:
        """Whether every child has ended."""
        return all(child.ended.is_set() for child in list(self.children.values()))

    def close(self, *, grace_seconds: float = 0.0) -> None:
        """End it, and with it every child that still lives; before that they may have a grace, in which they are to end."""
        if grace_seconds:
            self._end_all(grace_seconds)
        assert self.process.stdin is not None
        if not self.ready.is_set():
            self.process.kill()  # it still imports, and nothing has been forked
        with contextlib.suppress(BrokenPipeError):  # what a dead one was to be told
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join(5)

    def _end_all(self, grace_seconds: float) -> None:
        deadline, living = time.monotonic() + grace_seconds, list(self.children.values())
        for child in living:
            self.end(child)
        for child in living:
            child.ended.wait(max(0.0, deadline - time.monotonic()))

    def _end(self) -> str:
        """How it ended, in words."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            if (code := self.process.wait(1)) < 0:
                return f"it was ended by {signal_in_words(code)}"
        return "it ended without a word"

    def _last_word(self) -> str:
        said = self.log.read_bytes() if self.log is not None and self.log.exists() else b""
        return "".join(said[self.said_before :].decode(errors="replace").strip().splitlines()[-1:])

    def _send(self, message: dict[str, object]) -> None:
        assert self.process.stdin is not None
        with self.lock:
            try:
                self.process.stdin.write(json.dumps(message).encode() + b"\n")
                self.process.stdin.flush()
            except (BrokenPipeError, ValueError):
                self._bury_all()

    def _live(self, start: Callable[[], ParentProcess], started: Future[ParentProcess]) -> None:
        """Start it, and hear what it says until it has ended."""
        try:
            process = start()
        except OSError as error:
            started.set_exception(error)
            return
        started.set_result(process)
        self._listen(process)

    def _listen(self, process: ParentProcess) -> None:
        assert process.stdout is not None
        with process.stdout as answers:
            for line in answers:
                self._hear(json.loads(line))
        self._bury_all()

    def _hear(self, answer: dict[str, int]) -> None:
        if "ready" in answer:
            self.gpus = answer.get("gpus", 0)
            self.ready_once = True
            self.ready.set()
            return
        child = self.children[answer["id"]]
        child.pid = answer.get("pid", child.pid)
        child.begun.set()
        if "code" in answer:
            child.code = answer["code"]
            child.ended.set()
            del self.children[child.number]

    def _bury_all(self) -> None:
        """It is gone, and its children with it: nobody may go on waiting."""
        self.dead = True
        self.ready.set()
        for child in list(self.children.values()):
            _bury(child)


def _bury(child: Child) -> None:
    child.begun.set()
    child.ended.set()
