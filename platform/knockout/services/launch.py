"""Starting a server under the guard, and waiting until it answers.

The invariant: a server counts as healthy only when it answers on its port, its guard still runs, and the port
is listened on by a process below that guard (and not by a stranger who was quicker).
"""

from __future__ import annotations

import http.client
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from knockout.errors import ServiceError
from knockout.services import guard as guard_script
from knockout.services.catalog import HOST, Server
from knockout.services.processes import is_below, listener

HEALTH_TIMEOUT_SECONDS = 120.0
"""So long whoever could go on without a server waits for it."""
PATIENCE_SECONDS = 900.0
"""So long whoever cannot waits, while its process lives: on a machine that is busy with other work it takes minutes."""
TELL_SECONDS = 20.0
"""A wait is told so often."""
POLL_SECONDS = 0.1
LOG_LINES = 15


@dataclass(frozen=True)
class Start:
    """A server that is to be started: which, where, and who may own it."""

    server: Server
    workspace: Path
    port: int
    borrowed: bool
    log: Path
    mark: str = ""
    """`NAME=value` put into the environment of everything below, so that it can be found again."""


def prepare_folders(start: Start) -> None:
    """Make the folders and the database.

    Raises ServiceError where the disk, or what lies there, does not let them be made.
    """
    try:
        for folder in (start.server.folder(start.workspace), start.log.parent):
            folder.mkdir(parents=True, exist_ok=True)
        start.server.settle(start.workspace)
    except (OSError, sqlite3.Error) as error:
        raise ServiceError(f"{start.server.name} cannot start in {start.server.folder(start.workspace)}: {error}") from None


def environment(start: Start) -> dict[str, str]:
    """The environment of the guard and the server."""
    name, _, value = start.mark.partition("=")
    found = start.server.environment(start.workspace, start.port, start.borrowed)
    return {**found, name: value} if name else found


def guard_command(start: Start, *, detached: bool) -> list[str]:
    """The guard around the server's command line. The server runs in its own database's folder."""
    folder = str(start.server.folder(start.workspace))
    options = ["--grace", str(start.server.grace_seconds), "--cwd", folder, *(["--detached"] if detached else [])]
    command = start.server.command(start.workspace, start.port)
    return [sys.executable, "-I", "-S", str(guard_script.__file__), *options, "--", *command]


def launch_detached(start: Start) -> int:
    """Start a server that outlives this process. Returns the process id of its guard."""
    prepare_folders(start)
    with start.log.open("wb") as log:
        done = subprocess.run(
            guard_command(start, detached=True),
            env=environment(start),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            check=True,
        )
    return int(done.stdout)


def launch_owned(start: Start) -> subprocess.Popen[bytes]:
    """Start a server that ends with this process, or when the guard's standard input is closed."""
    prepare_folders(start)
    with start.log.open("wb") as log:
        return subprocess.Popen(
            guard_command(start, detached=False),
            env=environment(start),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C at the terminal is the owner's to handle
        )


def answers(port: int, *, path: str, timeout_seconds: float = 2.0) -> bool:
    """Whether GET on the loopback port returns 200. Goes through no proxy."""
    connection = http.client.HTTPConnection(HOST, port, timeout=timeout_seconds)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def is_serving(server: Server, *, port: int, guard: int) -> bool:
    """Whether the server below this guard answers on the port."""
    if not answers(port, path=server.health_path):
        return False
    holder = listener(port)
    return holder is None or is_below(holder, ancestor=guard)


def await_health(
    start: Start, *, guard: int, is_alive: Callable[[], bool], deadline: float, say: Callable[[str], None] = lambda _: None
) -> None:
    """Wait until the server answers. `deadline` is on the monotonic clock; `say` is told now and then what is waited for.

    Raises ServiceError with the end of its log if it dies or does not answer in time.
    """
    name, began = start.server.name, time.monotonic()
    told = began
    while not is_serving(start.server, port=start.port, guard=guard):
        if not is_alive():
            raise ServiceError(f"{name} ended while it was starting. {log_end(start.log)}")
        if (now := time.monotonic()) > deadline:
            raise ServiceError(f"{name} did not answer on port {start.port} in time. {log_end(start.log)}")
        if now - told > TELL_SECONDS:
            told = now
            say(f"waiting for {name} to answer on port {start.port} since {now - began:.0f} s; its log is {start.log}")
        time.sleep(POLL_SECONDS)
    if not is_alive():
        raise ServiceError(f"{name} answered once and ended. {log_end(start.log)}")


def log_end(log: Path) -> str:
    """The last lines of a server's log, for a message."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 16_384))
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return f"It wrote no log ({log})."
    told = [line.rstrip() for line in lines if line.strip()][-LOG_LINES:]
    shown = "".join(f"\n  {line}" for line in told) or " (empty)"
    return f"The end of {log}:{shown}"


def lost_its_port(log: Path) -> bool:
    """Whether the server found its port taken, although it was free a moment before."""
    return "already in use" in log_end(log)
