"""Folders of the workspace that lead out of it.

The invariant: nothing is deleted, moved or written behind a link: what lies there is not the workspace's.
"""

from __future__ import annotations

from collections.abc import Iterator

from knockout.errors import WorkspaceError
from knockout.ledger.aside import FOLDER
from knockout.ledger.kinds import misfit
from knockout.ledger.workspace import Workspace
from knockout.upkeep.finding import Finding

FOLDERS = ("runs", "corpora", "reports", "mlflow", "searches", "services", "calibrations")
"""What gc deletes from, beside lost+found."""


def leading_out(workspace: Workspace) -> Iterator[Finding]:
    """Folders that are links, or files."""
    for name in FOLDERS:
        if (why := misfit(workspace.folder / name, wanted="folder")) is not None:
            yield Finding("link", name, why, "put the folder itself there; until then nothing is deleted or moved there")
    lost = workspace.folder / FOLDER
    if (why := misfit(lost, wanted="folder")) is not None:
        if lost.is_symlink():
            yield Finding("link", FOLDER, why, "removes the link, and nothing behind it", lost.unlink)
        else:
            yield Finding("link", FOLDER, why, "move it away, and repair again")


def refuse_links(workspace: Workspace) -> None:
    """Raise WorkspaceError where a folder that would be deleted from is a link."""
    for name in (*FOLDERS, FOLDER):
        if (why := misfit(workspace.folder / name, wanted="folder")) is not None:
            raise WorkspaceError(f"{workspace.folder / name}: {why}: nothing is deleted there; `knockout doctor` tells more")
