"""The workspace: the folder that holds ledger, shards, runs and reports.

The invariant: everything in it is found by a path relative to it, so a workspace can be moved or copied.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from knockout.errors import WorkspaceError
from knockout.ledger.reserve import NUM_BYTES

VARIABLE = "KNOCKOUT_HOME"
FULL = (errno.ENOSPC, errno.EDQUOT)
"""What a system says of a disk, or a share of it, without room."""


@dataclass(frozen=True)
class Workspace:
    """Where each thing lies."""

    folder: Path
    reserve_left: int = NUM_BYTES
    """Down to so many bytes the command that opened it may take of the room that is kept for a full disk."""

    @property
    def ledger(self) -> Path:
        """The ledger's database."""
        return self.folder / "ledger.db"

    @property
    def corpora(self) -> Path:
        """Prepared corpora, one folder each."""
        return self.folder / "corpora"

    def run(self, identity: str) -> Path:
        """The folder of one run."""
        return self.folder / "runs" / identity

    def report(self, study: str, *, arguments: str = "") -> Path:
        """The folder of a study's report; one of its own for a study that the command line changed."""
        if not arguments:
            return self.folder / "reports" / study
        readable = re.sub(r"[^A-Za-z0-9]+", "-", arguments).strip("-")[:60]
        return self.folder / "reports" / study / f"{readable}-{hashlib.sha256(arguments.encode()).hexdigest()[:6]}"


def find_workspace(folder: Path | None = None) -> Workspace:
    """The workspace at `folder`, at $KNOCKOUT_HOME, or at ./.knockout, to look into it: nothing is made or written."""
    return Workspace((folder or Path(os.environ.get(VARIABLE) or ".knockout")).absolute())


def open_workspace(folder: Path | None = None, *, reserve_left: int = NUM_BYTES) -> Workspace:
    """The same workspace, to work in it; made when it is not there. With less than all of the reserve left (LOOKING for a
    command that looks, FREEING for one that makes room), it is opened also where its disk is full.

    Raises:
        WorkspaceError: it cannot be made or written.
    """
    path = find_workspace(folder).folder
    parts = (path, path / "corpora", path / "runs", path / "reports")
    for part in parts:
        if os.path.lexists(part) and not part.is_dir():
            raise WorkspaceError(f"{part} stands where the workspace has a folder: move it away, and try again")
    try:
        for part in parts:
            part.mkdir(parents=True, exist_ok=True)
        if not (ignore := path / ".gitignore").exists():
            _replace(ignore, content=b"*\n")
        with tempfile.TemporaryFile(dir=path) as probe:
            probe.write(b"writable?")
    except OSError as error:
        if error.errno not in FULL or reserve_left == NUM_BYTES:
            helps = f"free some, as with `knockout gc`, or set {VARIABLE}" if error.errno in FULL else f"set {VARIABLE}"
            raise WorkspaceError(
                f"the workspace {path} cannot be written: {error.strerror}; {helps} to a folder of yours with free space"
            ) from None
    return Workspace(path, reserve_left=reserve_left)


def write_atomically(path: Path, *, text: str | None = None, data: bytes | None = None) -> None:
    """Write a whole file or nothing: to a temporary name beside it, synced, then renamed.

    Raises:
        WorkspaceError: the disk is full, or the folder cannot be written.
    """
    try:
        _replace(path, content=data if data is not None else (text or "").encode())
    except OSError as error:
        raise WorkspaceError(f"{path} cannot be written: {error.strerror or error}") from error


def make_folder(path: Path, *, parents: bool = True) -> None:
    """Make a folder, and those around it unless they are to be there; no error when it is there. Raises WorkspaceError."""
    try:
        path.mkdir(parents=parents, exist_ok=True)
    except OSError as error:
        raise WorkspaceError(f"{path} cannot be made: {error.strerror or error}") from error


def write_json(path: Path, *, data: Any) -> None:
    """Write plain data as JSON, atomically."""
    write_atomically(path, text=json.dumps(data, indent=1, sort_keys=True) + "\n")


def _replace(path: Path, *, content: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
