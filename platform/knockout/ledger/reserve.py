"""A little room on the disk that is kept for one purpose: to record how a run or a submission ended when the disk is full.

The invariant: nothing but an ending gives the room up, and the next command that finds the disk with room keeps it again.
"""

from __future__ import annotations

import os
import shutil

from knockout.ledger.workspace import Workspace

RESERVE = "ledger.reserve"
NUM_BYTES = 1 << 18
"""Many times what SQLite writes for an ending: a few pages of its log."""


def keep(workspace: Workspace) -> None:
    """Keep the room, where that was not done yet and leaves most of what is free."""
    path = workspace.folder / RESERVE
    if path.exists() or shutil.disk_usage(workspace.folder).free < 4 * NUM_BYTES:
        return
    try:
        path.write_bytes(os.urandom(NUM_BYTES))  # a file system may make nothing of zeros
    except OSError:
        give_up(workspace)


def give_up(workspace: Workspace) -> bool:
    """Give the room back to the disk; whether there was any."""
    try:
        (workspace.folder / RESERVE).unlink()
    except OSError:
        return False
    return True
