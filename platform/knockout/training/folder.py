"""A run's folder, before anyone works in it.

The invariant: whatever has the name of a file or a folder of the run is one afterwards, and a result that stays there is
whole and says what was measured. What was not so lies in lost+found.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from knockout.ledger.aside import FOLDER, clear_way, set_aside
from knockout.ledger.kinds import Kind, is_folder, misfit
from knockout.ledger.workspace import Workspace, make_folder, write_json
from knockout.training.believing import contradiction
from knockout.training.progress import PROGRESS
from knockout.training.result import discard, read_result
from knockout.training.spec import CHECKPOINTS, LOCK, LOG, MEANING, METRICS, PASSED_OVER, RESULT, SEGMENTS, SPEED, WEIGHTS

FILES = (MEANING, RESULT, METRICS, WEIGHTS, SPEED, PASSED_OVER, LOG, LOCK, PROGRESS)
NUMBERED = {SEGMENTS: "[0-9]*.parquet", CHECKPOINTS: "[0-9]*.pt"}
"""The folders, and the names of what they hold."""


@dataclass(frozen=True)
class Readied:
    """A folder in which a run can be trained."""

    result: dict[str, Any] | None
    """Of a run that is sealed."""
    notes: tuple[str, ...]
    """What was set aside, in words."""


def make_ready(workspace: Workspace, identity: str, *, meaning: dict[str, Any]) -> Readied:
    """Make the folder of a run whose lease is held, and set right what stands there.

    Raises:
        WorkspaceError: it cannot be made, or what stands in the way cannot be moved.
    """
    folder = workspace.run(identity)
    notes = list(lay_out(workspace, identity, meaning=meaning))
    for path, kind in list(_places(folder)):
        notes += _cleared(path, workspace=workspace, wanted=kind)
    result = read_result(folder)
    if result is not None and (why := contradiction(folder, result=result)) is not None:
        set_aside(folder, workspace=workspace, why=why)
        notes.append(f"{why}; the result was moved to {FOLDER}/, and the run is trained again")
        result = None
        lay_out(workspace, identity, meaning=meaning)
    if result is None and (folder / RESULT).exists():
        discard(folder)
    return Readied(result, tuple(notes))


def lay_out(workspace: Workspace, identity: str, *, meaning: dict[str, Any]) -> list[str]:
    """Lay the canonical JSON of a run in its folder, where it does not lie there already; what was in the way, in words.

    Raises:
        WorkspaceError: the disk is full, or the workspace cannot be written.
    """
    path = workspace.run(identity) / MEANING
    notes = _cleared(path, workspace=workspace, wanted="file")
    if not _lies_there(path, data=meaning):
        make_folder(path.parent)
        write_json(path, data=meaning)
    return notes


def misfits(folder: Path) -> Iterator[tuple[Path, str]]:
    """What in a run's folder is no file where one belongs, or no folder, a link being neither; and in words what it is."""
    for path, kind in _places(folder):
        if (why := misfit(path, wanted=kind)) is not None:
            yield path, why


def _places(folder: Path) -> Iterator[tuple[Path, Kind]]:
    """Where a run has a file or a folder, as far as no link leads there."""
    yield folder, "folder"
    if not is_folder(folder):
        return
    for name in FILES:
        yield folder / name, "file"
    for name, pattern in NUMBERED.items():
        yield folder / name, "folder"
        if is_folder(folder / name):
            for path in sorted((folder / name).glob(pattern)):
                yield path, "file"


def _cleared(path: Path, *, workspace: Workspace, wanted: Kind) -> list[str]:
    note = clear_way(path, workspace=workspace, wanted=wanted)
    return [note] if note is not None else []


def _lies_there(path: Path, *, data: dict[str, Any]) -> bool:
    try:
        return json.loads(path.read_bytes()) == data
    except (OSError, ValueError):
        return False
