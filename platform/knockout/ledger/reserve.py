"""A little room on the disk that is kept to record how runs and submissions ended when the disk is full.

The invariant: it is given up piece by piece, for an ending, or for a command that looks or frees room; the next command that
finds the disk with room keeps all of it again.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

RESERVE = "ledger.reserve"
NUM_BYTES = 1 << 20
PIECE = 1 << 16
"""More than SQLite takes for an ending, and little enough that nothing else of a run has room in it."""
LOOKING = NUM_BYTES // 2
"""What commands that look leave, however often: for endings, and for the command that makes room."""
FREEING = NUM_BYTES // 4
"""What a command that makes room leaves."""


def keep(folder: Path) -> None:
    """Keep the room in a workspace's folder, where it is not kept whole and takes no more than a quarter of what is free."""
    path = folder / RESERVE
    if _size(path) == NUM_BYTES or shutil.disk_usage(folder).free < 4 * NUM_BYTES:
        return
    try:
        path.unlink(missing_ok=True)
        path.write_bytes(os.urandom(NUM_BYTES))  # a file system may make nothing of zeros
    except OSError:
        path.unlink(missing_ok=True)


def is_full(folder: Path) -> bool:
    """Whether the disk of a folder has less left than what is kept."""
    try:
        return shutil.disk_usage(folder).free < NUM_BYTES
    except OSError:
        return False


def give_up(folder: Path, *, left: int) -> bool:
    """Give a piece of the room in a workspace's folder back to the disk; whether that leaves at least so many bytes."""
    path = folder / RESERVE
    if (there := _size(path)) < left + PIECE:
        return False
    try:
        os.truncate(path, there - PIECE)
    except OSError:
        return False
    return True


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0
