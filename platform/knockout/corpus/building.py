"""A folder that is either there and whole, or not there.

The invariant: what is being built lies beside its target under another name, is renamed when all of it is
on the disk, and is built under one lock at a time. What a killed process left is never read as the target;
the next one goes on from it, since each file in it is whole or has a temporary name.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from knockout.errors import CorpusError, WorkspaceError

PARTIAL = ".partial"
LOCK = ".lock"
WORK = "work"
"""Folder inside one that is being built, for what is not part of the target."""
TEMPORARY = ".writing"


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
    """A folder to fill, which becomes `target` when the block ends well, without its WORK. Needs the target's lock.

    It holds what an interrupted block left. What wrong text or a full disk left is removed.

    Raises:
        WorkspaceError: the disk is full or cannot be written.
    """
    partial = _beside(target, PARTIAL)
    try:
        (partial / WORK).mkdir(parents=True, exist_ok=True)
        for cut_off in partial.rglob(f".*{TEMPORARY}"):
            cut_off.unlink(missing_ok=True)
        yield partial
        _remove(partial / WORK)
        _sync_files(partial)
        _replace(partial, target)
    except OSError as error:
        _remove(partial)
        raise _unwritable(target.parent, error) from None
    except CorpusError:
        _remove(partial)
        raise


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A file that becomes `path` when the block ends well: read-only, and under another name until then.

    It is on the disk for good when what is being built is; a kill does not harm it before.
    """
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}{TEMPORARY}")
    try:
        with partial.open("wb") as file:
            yield file
        partial.chmod(0o444)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_whole(path: Path, *, text: str) -> None:
    """Write a text file whole or not at all, and make it read-only."""
    with writing(path) as file:
        file.write(text.encode())


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


def _sync_files(folder: Path) -> None:
    for path in folder.iterdir():
        _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unwritable(folder: Path, error: OSError) -> WorkspaceError:
    reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or str(error)
    return WorkspaceError(f"{folder}: a corpus cannot be written there ({reason})")
