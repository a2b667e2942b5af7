"""A folder that is either there and whole, or not there.

The invariant: what is being built lies beside its target under another name, is renamed when all of it is
on the disk, and is built by one process at a time. What a killed process left is removed by the next one
and never read.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from knockout.errors import WorkspaceError

PARTIAL = ".partial"
LOCK = ".lock"


@contextmanager
def exclusive(target: Path, *, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock of a target; calls `on_wait` once when another process has it.

    Raises:
        WorkspaceError: the folder around the target cannot be written.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        file = _beside(target, LOCK).open("ab")
    except OSError as error:
        raise _unwritable(target.parent, error) from None
    with file:
        if not _try_lock(file.fileno()):
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def building(target: Path) -> Iterator[Path]:
    """An empty folder to fill, which becomes `target` when the block ends well. Needs the target's lock.

    Raises:
        WorkspaceError: the disk is full or cannot be written.
    """
    partial = _beside(target, PARTIAL)
    try:
        _remove_abandoned(target.parent)
        _remove(partial)
        partial.mkdir()
        yield partial
        _replace(partial, target)
    except OSError as error:
        raise _unwritable(target.parent, error) from None
    finally:
        _remove(partial)


def write_durably(path: Path, *, text: str) -> None:
    """Write a text file, flush it to the disk, and make it read-only."""
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    path.chmod(0o444)


def _replace(partial: Path, target: Path) -> None:
    _sync(partial)
    if target.exists():
        damaged = _beside(target, f".damaged{PARTIAL}")
        _remove(damaged)
        target.rename(damaged)
        partial.rename(target)
        _remove(damaged)
    else:
        partial.rename(target)
    _sync(target.parent)


def abandoned(folder: Path) -> Iterator[Path]:
    """What killed processes left of targets; a folder whose lock is held is being built. Each is locked while it is used."""
    for partial in sorted(folder.glob(f".*{PARTIAL}")):
        lock = partial.with_name(partial.name.removesuffix(PARTIAL).removesuffix(".damaged") + LOCK)
        with lock.open("ab") as file:
            if _try_lock(file.fileno()):
                yield partial


def _remove_abandoned(folder: Path) -> None:
    for partial in abandoned(folder):
        _remove(partial)


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _beside(target: Path, suffix: str) -> Path:
    return target.with_name(f".{target.name}{suffix}")


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unwritable(folder: Path, error: OSError) -> WorkspaceError:
    reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or str(error)
    return WorkspaceError(f"{folder}: a corpus cannot be written there ({reason})")
