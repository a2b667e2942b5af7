"""The owner's side of the nursery: start runs, signal them, learn how they ended. Imports no torch."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Literal

from knockout.services.warm import Child, ParentProcess, WarmParent
from knockout.training.spare import take_spare
from knockout.training.spec import Runtime

Task = Literal["train", "calibrate", "rest"]

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1")
_TUNABLES = ("hugetlb=1", "mmap_threshold=33554432", "trim_threshold=1073741824")
HEAP = {"GLIBC_TUNABLES": ":".join(f"glibc.malloc.{setting}" for setting in _TUNABLES)}
"""Huge pages, kept between steps: fewer than one page fault a step where there were up to thirty."""
PRIMITIVES = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "8192", "LRU_CACHE_CAPACITY": "8192"}
"""Room for a kernel of each prefix length, so that a second evaluation of prefixes makes none anew."""


class Nursery:
    """Starts the warm parent at once and in the background; the first launch waits until it is ready.

    A parent that has died takes its runs with it; the next launch starts another one.
    """

    def __init__(self, environment: Mapping[str, str], *, log: Path) -> None:
        self.environment = environment
        self.log = log
        self.children: dict[int, Child] = {}
        self.lock = threading.Lock()
        self.parent = self._start()

    @property
    def process(self) -> ParentProcess:
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

    def _ready_parent(self) -> WarmParent:
        with self.lock:
            if self.parent.dead and self.parent.ready_once:
                self.parent.close()
                self.parent = self._start()
            parent = self.parent
        parent.wait()
        return parent

    def _start(self) -> WarmParent:
        start = partial(_start, self.environment, log=self.log)
        return WarmParent(start, name="the training processes' parent", log=self.log)


class RestingNursery(Nursery):
    """Its runs rest instead of training."""

    def launch(self, folder: Path, *, runtime: Runtime, environment: Mapping[str, str], task: Task = "rest") -> Child:
        """See Nursery."""
        return super().launch(folder, runtime=runtime, environment=environment, task=task)


def warm_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """That of a process which forks trainings: it is read when torch is imported, and before."""
    return {**environment, **ONE_THREAD, **HEAP, **PRIMITIVES}


def _start(environment: Mapping[str, str], *, log: Path) -> ParentProcess:
    if (spare := take_spare(warm_environment(environment), log=log)) is not None:
        return spare
    with log.open("ab") as sink:
        return subprocess.Popen(
            [sys.executable, "-m", "knockout.training.nursery_start", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=sink,
            start_new_session=True,
            env=warm_environment(environment),
        )
