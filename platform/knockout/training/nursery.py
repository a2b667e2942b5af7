"""The warm parent of training processes: imports torch and Lightning once, then forks one process for each run.

A fork from here begins to train in a fraction of a second, where a fresh interpreter spends several on imports. The
invariant: this process starts no threads and computes nothing, so that a fork of it is whole; and when its owner dies,
however it dies, its standard input ends, and it kills every group that it started.

Requests and answers are lines of JSON:
    {"id": 1, "task": "train", "folder": "…", "runtime": {…}, "environment": {…}}
                                                                    ->  {"id": 1, "pid": 123}  …  {"id": 1, "code": 0}
    {"id": 1, "signal": 15}
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import select
import signal
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

import torch

from knockout.errors import KnockoutError, WorkspaceError
from knockout.training.calibrate import calibrate
from knockout.training.result import read_result
from knockout.training.run import train
from knockout.training.spec import EXIT_UNWRITABLE, LOCK, LOG, Runtime

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve requests from standard input until it ends."""
    wake = _wake_on_child()
    _answer({"ready": True, "gpus": _num_gpus()})
    running: dict[int, int] = {}
    pending = b""
    while True:
        readable, _, _ = select.select([0, wake], [], [])
        if wake in readable:
            os.read(wake, 4096)
            _reap(running)
        if 0 in readable:
            chunk = os.read(0, 65536)
            if not chunk:
                break
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                _serve(json.loads(line), running)
    for pid in running:
        _signal(pid, signal.SIGKILL)


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
        os.setsid()
        _die_with(owner)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        folder = Path(request["folder"])
        _redirect(folder / LOG)
        _hold(folder)
        os.environ.update(request["environment"])
        code = TASKS[request["task"]](folder, runtime=Runtime(**request["runtime"]))
    except BaseException as error:
        code = EXIT_UNWRITABLE if isinstance(error, WorkspaceError) or _unwritable(error) else 1
        _tell(error)
    finally:
        os._exit(code)


def _train(folder: Path, *, runtime: Runtime) -> int:
    """Train the run, unless another process has sealed it meanwhile."""
    return 0 if read_result(folder) is not None else train(folder, runtime=runtime)


TASKS = {"train": _train, "calibrate": calibrate}


def _tell(error: BaseException) -> None:
    """The error in the log, its last line a summary; nothing where the log cannot take it."""
    summary = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"
    with contextlib.suppress(OSError):
        os.write(2, f"{'' if isinstance(error, KnockoutError) else traceback.format_exc()}{summary}\n".encode())


def _unwritable(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def _hold(folder: Path) -> None:
    """Have the run's folder alone until this process ends: the process of a dead owner may be ending still."""
    fcntl.flock(os.open(folder / LOCK, os.O_WRONLY | os.O_CREAT), fcntl.LOCK_EX)


def _redirect(path: Path) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(nothing, 0)
    os.dup2(target, 1)
    os.dup2(target, 2)


def _die_with(owner: int) -> None:
    """Ask the kernel to kill this process when its parent dies; where the kernel cannot, the parent's end does it."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != owner:
        os._exit(1)


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


if __name__ == "__main__":
    main()
