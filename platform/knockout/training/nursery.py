"""The warm parent of training processes: imports torch and Lightning once, then forks one process for each run.

A fork from here begins to train in a fraction of a second, where a fresh interpreter spends several on imports. The
invariant: this process starts no threads and computes nothing, so that a fork of it is whole; and it dies with its owner,
also while it imports or is halted, and its runs with it. Where the kernel does not see to that, its standard input ends, and
it kills every group that it started.

Requests and answers are lines of JSON:
    {"id": 1, "task": "train", "folder": "…", "runtime": {…}, "environment": {…}}
                                                                    ->  {"id": 1, "pid": 123}  …  {"id": 1, "code": 0}
    {"id": 1, "signal": 15}
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import time
from pathlib import Path
from typing import Any, NoReturn

import torch

from knockout.services.locks import acquired
from knockout.services.processes import Process, identify, is_alive
from knockout.training.calibrate import calibrate
from knockout.training.dying import die_with
from knockout.training.job import train_on_devices
from knockout.training.processes import exit_code_of
from knockout.training.result import read_result, tidy
from knockout.training.run import train
from knockout.training.spec import LOCK, LOG, Runtime

HOLD_SECONDS = 10.0
"""So long a training process waits for the one before it to leave the run's folder."""


def main() -> None:
    """Serve requests from standard input until it ends, or nobody hears the answers."""
    running: dict[int, int] = {}
    with contextlib.suppress(BrokenPipeError):
        _serve_all(running)
    for pid in running:
        _signal(pid, signal.SIGKILL)


def _serve_all(running: dict[int, int]) -> None:
    wake = _wake_on_child()
    _answer({"ready": True, "gpus": _num_gpus()})
    pending = b""
    while True:
        readable, _, _ = select.select([0, wake], [], [])
        if wake in readable:
            os.read(wake, 4096)
            _reap(running)
        if 0 in readable:
            chunk = os.read(0, 65536)
            if not chunk:
                return
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                _serve(json.loads(line), running)


def _serve(request: dict[str, Any], running: dict[int, int]) -> None:
    if "signal" in request:
        for pid in [pid for pid, name in running.items() if name == request["id"]]:
            _signal(pid, request["signal"])
        return
    owner = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(request, owner=owner)
    running[pid] = request["id"]
    _answer({"id": request["id"], "pid": pid})


def _become(request: dict[str, Any], *, owner: int) -> NoReturn:
    """In the forked process: a session of its own, its own log, then the run."""
    code = 1
    try:
        code = exit_code_of(lambda: _work(request, owner=owner))
    finally:
        os._exit(code)


def _work(request: dict[str, Any], *, owner: int) -> int:
    os.setsid()
    die_with(owner)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
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


TASKS = {"train": _train, "calibrate": calibrate}


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


def _reap(running: dict[int, int]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        name = running.pop(pid)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # what it left behind when it ended
        _answer({"id": name, "code": os.waitstatus_to_exitcode(status)})


def _signal(pid: int, number: int) -> None:
    """Signal a run's whole group, or the process itself before it leads one. It was not waited for, so it is there."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        os.kill(pid, number)


def _wake_on_child() -> int:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reader


def _num_gpus() -> int:
    """Counted without touching the driver's context, which does not survive a fork."""
    return torch.cuda.device_count()


def _answer(message: dict[str, Any]) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")
