"""A lock on a file, held by one holder at a time, whatever process or thread it is in.

The invariant: the kernel drops the lock with its holder (flock(2)), so a killed process never leaves one
behind.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from knockout.errors import ServiceError


def store_lock(workspace: Path, *, name: str) -> Path:
    """The lock of a service's database (`prefect`, `mlflow`): whoever may migrate it holds this."""
    return workspace.resolve() / name / "store.lock"


@contextmanager
def locked(path: Path, *, timeout_seconds: float, is_wanted: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Hold the lock at `path`, waiting up to the timeout for it.

    Raises ServiceError if it stays taken, once it is no longer wanted, or if the file cannot be made.
    """
    deadline = time.monotonic() + timeout_seconds
    with _opened(path) as file:
        while not acquired(file.fileno()):
            if not is_wanted():
                raise ServiceError(f"{path}: no longer wanted")
            if time.monotonic() > deadline:
                raise ServiceError(
                    f"{path}: another process has held this lock for {timeout_seconds:.0f} s, starting a "
                    "server or migrating the database beside it; wait for it to finish, or end it"
                )
            time.sleep(0.05)
        try:
            yield
        finally:
            # Explicit: a process forked meanwhile shares the lock until it closes its copy of the file.
            fcntl.flock(file, fcntl.LOCK_UN)


def _opened(path: Path) -> IO[str]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a")
    except OSError as error:
        raise ServiceError(f"{path} cannot be written: {error.strerror or error}") from None


def acquired(descriptor: int) -> bool:
    """Take the lock if it is free."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
