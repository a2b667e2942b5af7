"""`lost+found/`: where goes what belongs nowhere in a workspace, is damaged, or stands in the way.

The invariant: nothing is deleted and nothing overwritten, a line in its log says what came from where and why, and nothing
is moved through a link.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from knockout.errors import WorkspaceError
from knockout.ledger.kinds import Kind, is_folder, misfit
from knockout.ledger.workspace import Workspace, make_folder, write_atomically

FOLDER = "lost+found"
LOG = "log.txt"
REPORT = "report.html"


def set_aside(path: Path, *, workspace: Workspace, why: str) -> Path:
    """Move a file, folder or link of the workspace to lost+found; where it is now.

    Raises:
        WorkspaceError: it cannot be moved, or one of the folders on the way is a link.
    """
    target = _free(path, workspace=workspace)
    try:
        path.rename(target)
    except OSError as error:
        raise WorkspaceError(f"{path} cannot be moved to {target.parent}: {error.strerror or error}") from error
    note(f"{path.relative_to(workspace.folder)} -> {target.name}: {why}", workspace=workspace)
    return target


def copy_aside(path: Path, *, workspace: Workspace, why: str) -> Path:
    """Copy a file of the workspace to lost+found; where the copy is.

    Raises:
        WorkspaceError: it cannot be written, or one of the folders on the way is a link.
    """
    target = _free(path, workspace=workspace)
    write_atomically(target, data=path.read_bytes())
    note(f"{path.relative_to(workspace.folder)} -> a copy in {target.name}: {why}", workspace=workspace)
    return target


def note(text: str, *, workspace: Workspace) -> None:
    """A line in the log, with the time. Raises WorkspaceError."""
    path = lost_folder(workspace) / LOG
    if (why := misfit(path, wanted="file")) is not None:
        raise WorkspaceError(f"{path}: {why}: move it away")
    with path.open("a", encoding="utf-8") as log:
        log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")


def lost_folder(workspace: Workspace) -> Path:
    """lost+found, made where it is not there.

    Raises:
        WorkspaceError: a link or a file stands there.
    """
    folder = workspace.folder / FOLDER
    if (why := misfit(folder, wanted="folder")) is not None:
        helps = (
            "remove it, or have `knockout doctor --repair` do so" if folder.is_symlink() else "move it away, and try again"
        )
        raise WorkspaceError(f"{folder}: {why}: {helps}")
    make_folder(folder)
    return folder


def clear_way(path: Path, *, workspace: Workspace, wanted: Kind) -> str | None:
    """Move to lost+found what stands where a file or folder of the workspace is wanted, or where a folder around it belongs.

    Returns what was moved, in words, or None.

    Raises:
        WorkspaceError: it cannot be moved.
    """
    around = [part for part in path.parents if part != workspace.folder and part.is_relative_to(workspace.folder)]
    places: list[tuple[Path, Kind]] = [(part, "folder") for part in reversed(around)]
    for part, kind in [*places, (path, wanted)]:
        if (why := misfit(part, wanted=kind)) is not None:
            set_aside(part, workspace=workspace, why=why)
            return f"{part.relative_to(workspace.folder)}: {why}; it was moved to {FOLDER}/"
    return None


def report_folder(workspace: Workspace, *, study: str, arguments: str) -> Path:
    """Where a study's report is to be written, with nothing of another kind in its way. Raises WorkspaceError."""
    folder = workspace.report(study, arguments=arguments)
    clear_way(folder / REPORT, workspace=workspace, wanted="file")
    return folder


def _free(path: Path, *, workspace: Workspace) -> Path:
    """A name in lost+found for what lies in the workspace, that is not taken."""
    inside = path.relative_to(workspace.folder)
    for part in (workspace.folder / one for one in inside.parents[:-1]):
        if not is_folder(part):
            raise WorkspaceError(f"{part} is no folder of the workspace: nothing is moved from behind it")
    folder, name = lost_folder(workspace), str(inside).replace("/", "-")
    tried, number = folder / name, 1
    while os.path.lexists(tried):
        number += 1
        tried = folder / f"{name}-{number}"
    return tried
