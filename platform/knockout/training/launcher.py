"""The owner's side of the nursery: start runs, signal them, learn how they ended. Imports no torch."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from knockout.errors import RunError
from knockout.training.spec import Runtime

START_SECONDS = 120.0
Task = Literal["train", "calibrate"]

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1")
_TUNABLES = ("hugetlb=1", "mmap_threshold=33554432", "trim_threshold=1073741824")
HEAP = {"GLIBC_TUNABLES": ":".join(f"glibc.malloc.{setting}" for setting in _TUNABLES)}
"""Huge pages, kept between steps: fewer than one page fault a step where there were up to thirty."""
PRIMITIVES = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "8192", "LRU_CACHE_CAPACITY": "8192"}
"""Room for a kernel of each prefix length, so that a second evaluation of prefixes makes none anew."""


@dataclass
class Child:
    """A training process."""

    number: int
    pid: int | None = None
    code: int | None = None
    """Exit code, or minus the signal that ended it; None while it runs."""
    ended: threading.Event = field(default_factory=threading.Event)


class Nursery:
    """Starts the warm parent at once and in the background; the first launch waits until it is ready.

    A parent that has died takes its runs with it; the next launch starts another one.
    """

    def __init__(self, environment: Mapping[str, str], *, log: Path) -> None:
        self.environment = environment
        self.log = log
        self.children: dict[int, Child] = {}
        self.lock = threading.Lock()
        self.parent = _Parent(environment, log=log)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The parent's."""
        return self.parent.process

    @property
    def gpus(self) -> int:
        """Number of CUDA devices; 0 before it is known."""
        return self.parent.gpus

    def num_gpus(self) -> int:
        """Number of CUDA devices, once the parent is ready.

        Raises:
            RunError: it did not come up.
        """
        return self._ready_parent().gpus

    def launch(self, folder: Path, *, runtime: Runtime, environment: Mapping[str, str], task: Task = "train") -> Child:
        """Start the run in `folder`, or its calibration; returns at once.

        Raises:
            RunError: the parent of the training processes did not come up.
        """
        parent = self._ready_parent()
        with self.lock:
            child = Child(len(self.children))
            self.children[child.number] = child
        where = {"folder": str(folder), "runtime": runtime.to_dict(), "environment": dict(environment)}
        parent.launch(child, request={"task": task, **where})
        return child

    def signal(self, child: Child, number: int) -> None:
        """Send a signal to the run's whole process group."""
        self.parent.signal(child, number=number)

    def close(self) -> None:
        """End the parent, and with it every run that still lives."""
        self.parent.close()

    def _ready_parent(self) -> _Parent:
        with self.lock:
            if self.parent.dead and self.parent.ready_once:
                self.parent.close()
                self.parent = _Parent(self.environment, log=self.log)
            parent = self.parent
        parent.wait()
        return parent


class _Parent:
    """One warm parent, and the runs that it has started."""

    def __init__(self, environment: Mapping[str, str], *, log: Path) -> None:
        self.log = log
        self.children: dict[int, Child] = {}
        self.lock = threading.Lock()
        self.ready = threading.Event()
        """Set when it can start runs, or never will."""
        self.ready_once = False
        self.gpus = 0
        self.dead = False
        self.said_before = log.stat().st_size if log.exists() else 0
        started: Future[subprocess.Popen[bytes]] = Future()
        # The kernel kills the parent when the thread that started it ends: that is the one which listens to it to its end.
        self.reader = threading.Thread(target=self._live, args=(environment, started), name="nursery", daemon=True)
        self.reader.start()
        self.process = started.result()

    def wait(self) -> None:
        """Wait until it is ready. Raises RunError when it did not come up."""
        self.ready.wait(START_SECONDS)
        if not self.ready_once:
            tail = self.log.read_bytes()[self.said_before :].decode(errors="replace").strip().splitlines()[-1:]
            late = f"it was not ready within {START_SECONDS:g} s; is the machine busy?"
            why = "".join(tail) or ("it ended without a word" if self.dead else late)
            raise RunError(f"the training processes' parent did not start: {why}; see {self.log}")

    def launch(self, child: Child, *, request: dict[str, object]) -> None:
        """Have it start a run; one that it can no longer start has ended at once, without a code."""
        with self.lock:
            self.children[child.number] = child
        self._send({"id": child.number, **request})
        if self.dead:
            child.ended.set()

    def signal(self, child: Child, *, number: int) -> None:
        """Signal a run of its own; one of an earlier parent has ended with that."""
        if child.number in self.children:
            self._send({"id": child.number, "signal": int(number)})

    def close(self) -> None:
        """End it, and with it every run that still lives."""
        assert self.process.stdin is not None
        if not self.ready.is_set():
            self.process.kill()  # it still imports, and no run has been started
        with contextlib.suppress(BrokenPipeError):  # what a dead one was to be told
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join(5)

    def _send(self, message: dict[str, object]) -> None:
        assert self.process.stdin is not None
        with self.lock:
            try:
                self.process.stdin.write(json.dumps(message).encode() + b"\n")
                self.process.stdin.flush()
            except (BrokenPipeError, ValueError):
                self._bury()

    def _live(self, environment: Mapping[str, str], started: Future[subprocess.Popen[bytes]]) -> None:
        """Start it, and hear what it says until it has ended."""
        try:
            process = _start(environment, log=self.log)
        except OSError as error:
            started.set_exception(error)
            return
        started.set_result(process)
        self._listen(process)

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as answers:
            for line in answers:
                self._hear(json.loads(line))
        self._bury()

    def _hear(self, answer: dict[str, int]) -> None:
        if "ready" in answer:
            self.gpus = answer["gpus"]
            self.ready_once = True
            self.ready.set()
            return
        child = self.children[answer["id"]]
        child.pid = answer.get("pid", child.pid)
        if "code" in answer:
            child.code = answer["code"]
            child.ended.set()

    def _bury(self) -> None:
        """It is gone, and its runs with it: nobody may go on waiting."""
        self.dead = True
        self.ready.set()
        for child in list(self.children.values()):
            child.ended.set()


def _start(environment: Mapping[str, str], *, log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as sink:
        return subprocess.Popen(
            [sys.executable, "-m", "knockout.training.nursery_start", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=sink,
            start_new_session=True,
            env={**environment, **ONE_THREAD, **HEAP, **PRIMITIVES},
        )
