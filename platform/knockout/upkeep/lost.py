"""`lost+found/`: where doctor puts what belongs nowhere.

The invariant: nothing is deleted and nothing overwritten; a line in its log says what came from where, and why.
"""

from __future__ import annotations

import time
from pathlib import Path

from knockout.errors import WorkspaceError
from knockout.ledger.workspace import Workspace, make_folder, write_atomically

FOLDER = "lost+found"
LOG = "log.txt"


def set_aside(path: Path, *, workspace: Workspace, why: str) -> Path:
    """Move a file or folder of the workspace to lost+found; where it is now.

    Raises:
        WorkspaceError: it cannot be moved.
    """
    folder = workspace.folder / FOLDER
    make_folder(folder)
    target = _free(folder, name=str(path.relative_to(workspace.folder)).replace("/", "-"))
    try:
        path.rename(target)
    except OSError as error:
        raise WorkspaceError(f"{path} cannot be moved to {folder}: {error.strerror or error}") from None
    note(f"{path.relative_to(workspace.folder)} -> {target.name}: {why}", workspace=workspace)
    return target


def copy_aside(path: Path, *, workspace: Workspace, why: str) -> Path:
    """Copy a file of the workspace to lost+found; where the copy is.

    Raises:
        WorkspaceError: it cannot be written.
    """
    folder = workspace.folder / FOLDER
    make_folder(folder)
    target = _free(folder, name=str(path.relative_to(workspace.folder)).replace("/", "-"))
    write_atomically(target, data=path.read_bytes())
    note(f"{path.relative_to(workspace.folder)} -> a copy in {target.name}: {why}", workspace=workspace)
    return target


def note(text: str, *, workspace: Workspace) -> None:
    """A line in the log, with the time."""
    make_folder(workspace.folder / FOLDER)
    with (workspace.folder / FOLDER / LOG).open("a", encoding="utf-8") as log:
        log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")


def _free(folder: Path, *, name: str) -> Path:
    """A name in the folder that is not taken."""
    tried, number = folder / name, 1
    while tried.exists():
        number += 1
        tried = folder / f"{name}-{number}"
    return tried
