"""A server for as long as this process needs one: the one that `up` started, or else a short-lived one.

The invariant: a server that was started here ends with this process, however that ends; one that `up` started
is never touched.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from knockout.errors import ServiceError
from knockout.services import catalog
from knockout.services.catalog import Server
from knockout.services.launch import (
    HEALTH_TIMEOUT_SECONDS,
    Start,
    await_health,
    launch_owned,
    lost_its_port,
)
from knockout.services.locks import locked, store_lock
from knockout.services.processes import free_port
from knockout.services.servers import status_one

ATTEMPTS = 3


class Borrowing:
    """A server that is being found or started in the background."""

    def __init__(self, workspace: Path, *, server: Server) -> None:
        self._workspace = workspace
        self._server = server
        self._url: Future[str] = Future()
        self._stopping = threading.Event()
        self._guard: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name=f"borrow-{server.name}", daemon=True)
        self._thread.start()

    def wait(self, *, timeout_seconds: float = HEALTH_TIMEOUT_SECONDS + 60) -> str:
        """The server's base address, once it answers (Prefect's API is at `/api` below it).

        Raises ServiceError if the server did not start, was stopped, or does not answer in time.
        """
        try:
            return self._url.result(timeout_seconds)
        except TimeoutError as error:
            raise ServiceError(f"{self._server.name} was not ready within {timeout_seconds:.0f} s") from error

    def stop(self) -> None:
        """End the server, if it was started here, and wait until it is gone. Safe to call again."""
        self._stopping.set()
        self._thread.join()
        if self._guard is not None:
            end_guard(self._guard, grace_seconds=self._server.grace_seconds)
            self._guard = None
            owned_log(self._workspace, server=self._server).unlink(missing_ok=True)

    def _is_wanted(self) -> bool:
        return not self._stopping.is_set()

    def _run(self) -> None:
        try:
            self._url.set_result(self._find_or_start())
        except Exception as error:  # handed to whoever waits
            stopped = ServiceError(f"{self._server.name} was stopped before it was ready")
            self._url.set_exception(error if self._is_wanted() else stopped)

    def _find_or_start(self) -> str:
        found = status_one(self._workspace, server=self._server)
        if found.healthy and found.url is not None:
            return found.url
        lock = store_lock(self._workspace, name=self._server.name)
        with locked(lock, timeout_seconds=HEALTH_TIMEOUT_SECONDS + 30, is_wanted=self._is_wanted):
            found = status_one(self._workspace, server=self._server)  # an `up` may have come first
            if found.healthy and found.url is not None:
                return found.url
            return self._start()

    def _may_go_on(self, guard: subprocess.Popen[bytes]) -> bool:
        return guard.poll() is None and self._is_wanted()

    def _start(self) -> str:
        deadline = time.monotonic() + HEALTH_TIMEOUT_SECONDS
        for attempt in range(ATTEMPTS):
            start = owned_start(self._workspace, server=self._server)
            guard = launch_owned(start)
            try:
                alive = partial(self._may_go_on, guard)
                await_health(start, guard=guard.pid, is_alive=alive, deadline=deadline)
            except ServiceError:
                end_guard(guard, grace_seconds=self._server.grace_seconds)
                if attempt + 1 < ATTEMPTS and self._is_wanted() and lost_its_port(start.log):
                    continue
                raise
            self._guard = guard
            return catalog.url(start.port)
        raise AssertionError("the last attempt either returns or raises")


def owned_start(workspace: Path, *, server: Server) -> Start:
    """The start of a server that ends with this process, on a port that is free now."""
    log = owned_log(workspace, server=server)
    return Start(server=server, workspace=workspace, port=free_port(), borrowed=True, log=log)


def owned_log(workspace: Path, *, server: Server) -> Path:
    """The log of this process's own server; removed when it has ended well."""
    return server.log(workspace, suffix=f"-{os.getpid()}")


def end_guard(guard: subprocess.Popen[bytes], *, grace_seconds: float) -> None:
    """Close the pipe that keeps the server alive, and wait for its guard."""
    if guard.stdin is not None:
        guard.stdin.close()
    try:
        guard.wait(grace_seconds + 10)
    except subprocess.TimeoutExpired:
        guard.kill()  # the kernel then kills the server with it
        guard.wait()


def begin(workspace: Path, *, name: str) -> Borrowing:
    """Find or start a server (`prefect` or `mlflow`) in the background; returns at once.

    Raises ServiceError for an unknown name; every other error is raised by `wait`.
    """
    return Borrowing(workspace, server=catalog.find(name))


@contextmanager
def borrowed(workspace: Path, *, name: str) -> Iterator[str]:
    """A server's base address, for the length of the block. Raises ServiceError if it does not start."""
    borrowing = begin(workspace, name=name)
    try:
        yield borrowing.wait()
    finally:
        borrowing.stop()
