"""What runs have left that they could not go on from, and what stands in their folders that is of another kind.

The invariant: it finds what a run would pass over or move away itself, and takes away no more than that.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from knockout.errors import WorkspaceError
from knockout.ledger.aside import set_aside
from knockout.ledger.workspace import Workspace
from knockout.training.believing import contradiction
from knockout.training.covering import cover, faults
from knockout.training.folder import misfits
from knockout.training.metrics import segments
from knockout.training.result import checkpoint_files, read_result
from knockout.upkeep.finding import Finding

TO_LOST = "moves it to lost+found/"


def of_another_kind(folder: Path, *, workspace: Workspace) -> Iterator[Finding]:
    """A folder or a link where a run has a file, a file or a link where it has a folder."""
    for path, why in misfits(folder):
        yield _damaged(path, why=why, remedy=TO_LOST, workspace=workspace)


def unusable(folder: Path, *, workspace: Workspace) -> Iterator[Finding]:
    """What a run without a result, that nobody holds, could not go on from, or could not be entered with."""
    yield from of_another_kind(folder, workspace=workspace)
    result = read_result(folder)
    if result is not None and (why := contradiction(folder, result=result)) is not None:
        yield _damaged(folder, why=why, remedy=f"{TO_LOST}; the run is trained again", workspace=workspace)
        return
    unreadable = list(faults(folder))
    for path, why in unreadable:
        yield _damaged(path, why=why, remedy=TO_LOST, workspace=workspace)
    yield from _checkpoints(folder, workspace=workspace)
    if not unreadable:
        yield from _beyond(folder, workspace=workspace)


def reaches(folder: Path) -> int:
    """The step from which a run without a result could go on, as far as is seen without torch; 0 where from none."""
    return 0 if any(misfits(folder)) else _newest(folder, up_to=cover(folder).step)


def _newest(folder: Path, *, up_to: int) -> int:
    """The step of the newest checkpoint up to a step; 0 where there is none."""
    return max((step for path in checkpoint_files(folder) if (step := int(path.stem)) <= up_to), default=0)


def _checkpoints(folder: Path, *, workspace: Workspace) -> Iterator[Finding]:
    paths = checkpoint_files(folder)
    if not paths:
        return
    from knockout.training.checkpoints import load_checkpoint  # torch takes a second to import

    for path in paths:
        try:
            load_checkpoint(path)
        except WorkspaceError as error:
            remedy = f"{TO_LOST}; the one before it counts"
            yield _damaged(path, why=str(error), remedy=remedy, workspace=workspace)


def _beyond(folder: Path, *, workspace: Workspace) -> Iterator[Finding]:
    """Checkpoints, and metrics, after a step whose metrics are gone."""
    checkpoints, written = checkpoint_files(folder), segments(folder)
    covered = cover(folder)
    beyond = [path for path in (*checkpoints, *written) if int(path.stem) > covered.step]
    if not checkpoints or not beyond:
        return
    step = _newest(folder, up_to=covered.step)
    goes_on = f"goes on from step {step}" if step else "is trained from its start"
    remedy = f"moves what lies beyond to lost+found/; the run {goes_on}"
    repair = partial(_set_all_aside, beyond, workspace=workspace, why=covered.said)
    yield Finding("damaged run", _where(folder, workspace), covered.said.replace(f"{folder}/", ""), remedy, repair)


def _set_all_aside(paths: list[Path], *, workspace: Workspace, why: str) -> None:
    for path in paths:
        set_aside(path, workspace=workspace, why=why)


def _damaged(path: Path, *, why: str, remedy: str, workspace: Workspace) -> Finding:
    repair = partial(set_aside, path, workspace=workspace, why=why)
    return Finding("damaged run", _where(path, workspace), why.removeprefix(f"{path} "), remedy, repair)


def _where(path: Path, workspace: Workspace) -> str:
    return str(path.relative_to(workspace.folder))
