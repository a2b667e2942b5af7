"""The warm parent's side: a process that has imported what its children need, and forks one of them for each request.

The invariant: this process starts no threads and computes nothing, so that a fork of it is whole; when its standard input
ends, or nobody hears its answers, it kills every group that it started.

Requests and answers are lines of JSON:
    {"id": 1, …}                  ->  {"id": 1, "pid": 123}  …  {"id": 1, "code": 0}
    {"id": 1, "signal": 15}
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Forked:
    """What a child was forked for."""

    request: dict[str, Any]
    parent: int
    """The warm parent's process id."""


def serve(greeting: dict[str, Any]) -> Forked | None:
    """Say the greeting, then serve requests from standard input until it ends; then None.

    In each child that it forks it returns what that one was forked for: the child leads a session of its own, and handles
    signals as a new process does.
    """
    running: dict[int, int] = {}
    with contextlib.suppress(BrokenPipeError):
        if (forked := _serve_all(greeting, running)) is not None:
            return forked
    for pid in running:
        _signal(pid, signal.SIGKILL)
    return None


def _serve_all(greeting: dict[str, Any], running: dict[int, int]) -> Forked | None:
    wake = _wake_on_child()
    _answer({"ready": True, **greeting})
    pending = b""
    while True:
        readable, _, _ = select.select([0, wake], [], [])
        if wake in readable:
            os.read(wake, 4096)
            _reap(running)
        if 0 in readable:
            chunk = os.read(0, 65536)
            if not chunk:
                return None
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                if (forked := _serve(json.loads(line), running)) is not None:
                    return forked


def _serve(request: dict[str, Any], running: dict[int, int]) -> Forked | None:
    if "signal" in request:
        for pid in [pid for pid, name in running.items() if name == request["id"]]:
            _signal(pid, request["signal"])
        return None
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _begin()
        return Forked(request, parent)
    running[pid] = request["id"]
    _answer({"id": request["id"], "pid": pid})
    return None


def _begin() -> None:
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


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
    """Signal a child's whole group, or the child itself before it leads one. It was not waited for, so it is there."""
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


def _answer(message: dict[str, Any]) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")
