"""Checkpoints: primitives and tensors only, written to a temporary name, synced and renamed, two kept.

The invariant: whatever carries a checkpoint's final name is whole. One that does not load all the same (a damaged
disk) is passed over for the one before it.
"""

from __future__ import annotations

import io
import logging
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch

from knockout.ledger.workspace import write_atomically
from knockout.training.spec import CHECKPOINTS

KEPT = 2

log = logging.getLogger(__name__)


def save_checkpoint(folder: Path, *, step: int, state: dict[str, Any]) -> None:
    """Write the state after `step` optimizer steps, and drop all but the newest two."""
    target = folder / CHECKPOINTS
    target.mkdir(exist_ok=True)
    write_atomically(target / f"{step:010d}.pt", data=to_bytes({"step": step, **state}))
    for path in _checkpoints(folder)[:-KEPT]:
        path.unlink()


def newest_checkpoint(folder: Path) -> dict[str, Any] | None:
    """The newest checkpoint that loads, on the CPU; None when there is none."""
    for path in reversed(_checkpoints(folder)):
        try:
            return _load(path)
        except (OSError, RuntimeError, EOFError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
            log.warning("%s does not load (%s); trying the one before it", path, error)
    return None


def _load(path: Path) -> dict[str, Any]:
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


def _checkpoints(folder: Path) -> list[Path]:
    return sorted((folder / CHECKPOINTS).glob("[0-9]*.pt"))
