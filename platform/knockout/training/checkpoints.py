"""Checkpoints: primitives and tensors only, written to a temporary name, synced and renamed, two kept.

The invariant: whatever carries a checkpoint's final name is whole, and says whose it is and of which step. One that does
not load all the same (a damaged disk), or is another run's, is passed over for the one before it.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch

from knockout.errors import WorkspaceError
from knockout.ledger.workspace import make_folder, write_atomically
from knockout.training.result import checkpoint_files
from knockout.training.spec import CHECKPOINTS

KEPT = 2
UNREADABLE = (
    OSError, RuntimeError, EOFError, pickle.UnpicklingError, zipfile.BadZipFile, ValueError, LookupError, TypeError,
    AttributeError,
)  # fmt: skip
"""What torch and zipfile raise for content that is no whole checkpoint."""


def save_checkpoint(folder: Path, *, step: int, state: dict[str, Any]) -> None:
    """Write the state after `step` optimizer steps, and drop all but the newest two."""
    target = folder / CHECKPOINTS
    make_folder(target, parents=False)
    write_atomically(target / f"{step:010d}.pt", data=to_bytes({"run": folder.name, "step": step, **state}))
    drop_old(folder)


def drop_old(folder: Path) -> None:
    """Drop all checkpoints but the newest two."""
    for path in checkpoint_files(folder)[:-KEPT]:
        path.unlink()


def load_checkpoint(path: Path) -> dict[str, Any]:
    """A checkpoint in the folder of a run, on the CPU. One of an older knockout does not say whose it is.

    Raises:
        WorkspaceError: it cannot be read, or is of another run or step than its place says.
    """
    try:
        state = _load(path)
    except UNREADABLE as error:
        raise WorkspaceError(f"{path} does not load: {str(error).splitlines()[0] if str(error) else error!r}") from error
    run = path.parent.parent.name
    if not isinstance(state, dict) or state.get("step") != int(path.stem):
        raise WorkspaceError(f"{path} is not the checkpoint of step {int(path.stem)}")
    if state.get("run", run) != run:
        raise WorkspaceError(f"{path} is a checkpoint of run {state['run']}")
    return state


def _load(path: Path) -> Any:
    """A checkpoint whose every record has its checksum, which torch writes but does not compare."""
    with zipfile.ZipFile(path) as records:
        if (damaged := records.testzip()) is not None:
            raise zipfile.BadZipFile(f"its record {damaged} is damaged")
    return torch.load(path, map_location="cpu", weights_only=True)


def to_bytes(state: dict[str, Any]) -> bytes:
    """A state in torch's file format, in memory."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()
