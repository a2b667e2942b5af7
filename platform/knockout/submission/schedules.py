"""The schedules of a workspace: what flows/schedules.yaml declares, and what the command line added, paused or resumed.

The invariant: this is what is wanted, and lasts; a server's schedules are made to match it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from knockout import project
from knockout.declare.document import Document
from knockout.declare.load import validate
from knockout.declare.problems import nearest
from knockout.declare.schedules import FILE, Schedule, load_schedules
from knockout.errors import DeclarationError, InputError, WorkspaceError, quoted
from knockout.ledger.workspace import Workspace, write_json
from knockout.services.locks import locked

KEPT = "schedules.json"
LOCK_SECONDS = 10.0


@dataclass(frozen=True)
class Known:
    """A schedule, where it comes from, and whether it runs."""

    schedule: Schedule
    project: str
    """The folder from which its studies are found."""
    declared: str | None
    """The file that declares it; None for one that the command line added."""
    active: bool


@dataclass(frozen=True)
class Unsound:
    """A schedule that the workspace keeps and that cannot be: it never runs."""

    name: str
    why: str


@dataclass(frozen=True)
class _Kept:
    """What the workspace keeps of schedules."""

    added: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By name: the schedule as plain data, and its project's folder."""
    active: Mapping[str, bool] = field(default_factory=dict)
    """By name: what the command line said last."""
    file: str | None = None
    """The file that declares schedules, as `keep_file` found it; None: that of whichever folder a command is given in."""


def schedules(workspace: Workspace) -> tuple[Known, ...]:
    """Every schedule that is sound, the declared ones first.

    Raises:
        DeclarationError: flows/schedules.yaml is wrong.
        WorkspaceError: what the workspace keeps cannot be read.
    """
    kept = _read(workspace)
    found = [
        Known(one, project=str(file.parents[1]), declared=str(file), active=kept.active.get(one.schedule, one.active))
        for file, one in _declared(kept)
    ]
    names = {one.schedule.schedule for one in found}
    for name, data in kept.added.items():
        if name not in names and isinstance(one := _sound(name, data=data), Schedule):
            active = kept.active.get(one.schedule, one.active)
            found.append(Known(one, project=data["project"], declared=None, active=active))
    return tuple(found)


def unsound(workspace: Workspace) -> tuple[Unsound, ...]:
    """The schedules that the workspace keeps and that cannot be. Raises as `schedules`."""
    kept = _read(workspace)
    every = [_sound(name, data=data) for name, data in kept.added.items()]
    twice = [Unsound(one.schedule, f"{file} declares one of that name") for file, one in _declared(kept)]
    return (*(one for one in every if isinstance(one, Unsound)), *(one for one in twice if one.name in kept.added))


def find_schedule(name: str, *, workspace: Workspace) -> Known:
    """One schedule by name. Raises InputError when there is none."""
    known = {one.schedule.schedule: one for one in schedules(workspace)}
    if name not in known:
        there = f"there are {', '.join(known)}" if known else "there are none"
        raise InputError(f"no schedule {quoted(name)} ({there}){nearest(name, list(known))}")
    return known[name]


def add(schedule: Schedule, *, folder: Path, workspace: Workspace) -> None:
    """Keep a schedule in the workspace; its studies are found from `folder`.

    Raises:
        InputError: there is one of that name.
    """
    with _changing(workspace) as kept:
        if schedule.schedule in {*kept.added, *(one.schedule.schedule for one in schedules(workspace))}:
            raise InputError(f"there is a schedule '{schedule.schedule}': remove it first, or choose another name")
        data = {"schedule": schedule.model_dump(mode="json"), "project": str(folder)}
        _write(replace(kept, added={**kept.added, schedule.schedule: data}), workspace=workspace)


def remove(name: str, *, workspace: Workspace) -> None:
    """Take a schedule out of the workspace.

    Raises:
        InputError: there is none of that name, or a file declares it.
    """
    with _changing(workspace) as kept:
        if name not in kept.added:
            declared = find_schedule(name, workspace=workspace).declared
            raise InputError(f"{declared} declares '{name}': take it out there, or `knockout schedule pause {name}`")
        added = {key: value for key, value in kept.added.items() if key != name}
        active = {key: value for key, value in kept.active.items() if key != name}
        _write(replace(kept, added=added, active=active), workspace=workspace)


def set_active(name: str, *, active: bool, workspace: Workspace) -> None:
    """Pause a schedule, or let it go on. Raises InputError when there is none of that name."""
    with _changing(workspace) as kept:
        find_schedule(name, workspace=workspace)
        _write(replace(kept, active={**kept.active, name: active}), workspace=workspace)


def _sound(name: str, *, data: Mapping[str, Any]) -> Schedule | Unsound:
    try:
        return validate(Document(dict(data["schedule"])), model=Schedule)
    except DeclarationError as error:
        return Unsound(name, "; ".join(f"{problem.path}: {problem.message}" for problem in error.problems))


def keep_file(workspace: Workspace) -> None:
    """From now on the workspace's schedules are those that this folder's file declares, where it has one."""
    file = Path.cwd() / "flows" / FILE
    if file.is_file():
        with _changing(workspace) as kept:
            _write(replace(kept, file=str(file)), workspace=workspace)


def _declared(kept: _Kept) -> Iterator[tuple[Path, Schedule]]:
    """The schedules of the file that is kept, or else of the project's, or else of the shipped one."""
    places = [Path(kept.file)] if kept.file is not None else [folder / FILE for folder in project.search_path("flows")]
    file = next((path for path in places if path.is_file()), None)
    if file is not None:
        yield from ((file, one) for one in load_schedules(file))


def _read(workspace: Workspace) -> _Kept:
    path = workspace.folder / KEPT
    try:
        return _Kept(**json.loads(path.read_bytes()))
    except FileNotFoundError:
        return _Kept()
    except (OSError, ValueError, TypeError) as error:
        raise WorkspaceError(f"{path} cannot be read ({error}): remove it, and add its schedules again") from None


def _write(kept: _Kept, *, workspace: Workspace) -> None:
    write_json(workspace.folder / KEPT, data=asdict(kept))


@contextmanager
def _changing(workspace: Workspace) -> Iterator[_Kept]:
    """What is kept, while nobody else changes it."""
    with locked(workspace.folder / f"{KEPT}.lock", timeout_seconds=LOCK_SECONDS):
        yield _read(workspace)
