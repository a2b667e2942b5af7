"""The file of a workspace's searches, looked at without Optuna.

The invariant: nothing is lost with the file. Trials are runs of the ledger, so a search that is walked again on a new file
proposes the same ones and finds their results.
"""

from __future__ import annotations

from pathlib import Path

from knockout.services.database import find_database
from knockout.services.sqlite import damage as damage_of

NAME = "optuna.db"
ANEW = "moves it to lost+found/, and the next search builds it again from the ledger's runs"
"""What repairing does with a damaged file."""
REMEDY = f"`knockout doctor --repair` {ANEW}"


def database(workspace: Path) -> Path:
    """The file, where the workspace keeps one."""
    return workspace / NAME


def damage(workspace: Path) -> str | None:
    """Why the file cannot be used, or None: it is sound, or not there, or a database that machines share is used.

    Raises:
        WorkspaceError: it cannot be looked at: it is locked, or may not be read.
    """
    path = database(workspace)
    return damage_of(path) if path.exists() and find_database(workspace) is None else None
