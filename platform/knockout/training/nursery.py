"""The warm parent of training processes: imports torch and Lightning once, then forks one process for each run.

A fork from here begins to train in a fraction of a second, where a fresh interpreter spends several on imports. The
invariant: it dies with its owner, also while it imports or is halted, and its runs with it.

A request, beside what `services.forking` says of requests, is
    {"task": "train", "folder": "…", "runtime": {…}, "environment": {…}}
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import time
from pathlib import Path
from typing import Any, NoReturn

import torch

from knockout.services.forking import Forked, serve
from knockout.services.locks import acquired
from knockout.services.processes import Process, identify, is_alive
from knockout.training.calibrate import calibrate
from knockout.training.dying import die_with
from knockout.training.job import train_on_devices
from knockout.training.processes import exit_code_of
from knockout.training.resting import rest
from knockout.training.result import read_result, tidy
from knockout.training.run import train
from knockout.training.spec import LOCK, LOG, Runtime

HOLD_SECONDS = 10.0
"""So long a training process waits for the one before it to leave the run's folder."""


def main() -> None:
    """Serve requests from standard input until it ends, or nobody hears the answers."""
    forked = serve({"gpus": _num_gpus()})
    if forked is not None:
        _become(forked)


def _become(forked: Forked) -> NoReturn:
    """In the forked process: its own log, then the run."""
    code = 1
    try:
        code = exit_code_of(lambda: _work(forked.request, owner=forked.parent))
    finally:
        os._exit(code)


def _work(request: dict[str, Any], *, owner: int) -> int:
    die_with(owner)
    folder = Path(request["folder"])
    _redirect(folder / LOG)
    _hold(folder)
    tidy(folder)
    os.environ.update(request["environment"])
    return TASKS[request["task"]](folder, runtime=Runtime(**request["runtime"]))


def _train(folder: Path, *, runtime: Runtime) -> int:
    """Train the run, unless another process has sealed it meanwhile."""
    if read_result(folder) is not None:
        return 0
    return train(folder, runtime=runtime) if runtime.devices == 1 else train_on_devices(folder, runtime=runtime)


TASKS = {"train": _train, "calibrate": calibrate, "rest": rest}


def _hold(folder: Path) -> None:
    """Have the run's folder alone until this process ends.

    The process of a dead owner may be ending still. One that holds the folder for longer belongs to an owner that has lost
    its lease: it is killed, also where it was halted and would not end by itself.
    """
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT)
    until = time.monotonic() + HOLD_SECONDS
    while not acquired(lock):
        if time.monotonic() > until:
            _kill_holder(os.pread(lock, 256, 0))
            fcntl.flock(lock, fcntl.LOCK_EX)
            break
        time.sleep(0.05)
    me = identify(os.getpid())
    os.ftruncate(lock, 0)
    os.pwrite(lock, json.dumps(me.as_dict() if me is not None else None).encode(), 0)


def _kill_holder(said: bytes) -> None:
    """End the process that a lock file names, if it is that process still, and this machine's."""
    with contextlib.suppress(ValueError, TypeError, ProcessLookupError):  # it wrote nothing, or is gone
        holder = Process(**json.loads(said))
        if is_alive(holder):
            os.kill(holder.pid, signal.SIGKILL)


def _redirect(path: Path) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(nothing, 0)
    os.dup2(target, 1)
    os.dup2(target, 2)


def _num_gpus() -> int:
    """Counted without touching the driver's context, which does not survive a fork."""
    return torch.cuda.device_count()
