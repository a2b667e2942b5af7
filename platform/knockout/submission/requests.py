"""What was submitted to a pool, as a small file in the workspace: an address names it, and whoever takes it reads it there.

The invariant: written once, whole, before anybody is told of the submission.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from knockout import project
from knockout.declare.load import Loaded, Overrides, as_path, find_study, load_study
from knockout.errors import WorkspaceError
from knockout.ledger.stops import request_stop, stopped_among, wanted_stop
from knockout.ledger.store import Ledger, Submission
from knockout.ledger.workspace import Workspace, make_folder, write_atomically, write_json
from knockout.services.objects import find_store
from knockout.submission.options import Options

FOLDER = "submissions"
DECLARATIONS = ("ablations/**/*.yaml", "data/*.yaml")
"""What a project declares, as patterns below its folder."""


@dataclass(frozen=True)
class Request:
    """A study that a pool is to bring to its verdicts."""

    submission: str
    study: str
    """Its name, or its file's absolute path."""
    project: str
    """The folder whose ablations/ and data/ go before the shipped ones."""
    pool: str
    handed: float
    """When it was handed over, in seconds since 1970."""
    overrides: Overrides = field(default_factory=Overrides)
    options: Options = field(default_factory=Options)
    declarations: dict[str, str] = field(default_factory=dict)
    """The project's files by their path below its folder, for machines that do not have it; none where they share a disk."""

    @property
    def study_name(self) -> str:
        """The study's name, or that of its file."""
        return Path(self.study).stem

    def load(self) -> Loaded:
        """The study as it is now, seen from the current folder; raises as `load_study`."""
        path = as_path(self.study)
        here = self.study if path is None or path.exists() else self.study_name
        return load_study(find_study(here), overrides=self.overrides)

    def place(self, workspace: Workspace) -> Path:
        """The project's folder where it is on this machine and says the same, or else a folder of the workspace that does.

        Raises:
            WorkspaceError: the workspace cannot be written.
        """
        there = Path(self.project)
        if all(_says(there / name, text=text) for name, text in self.declarations.items()):
            return there
        laid_out = workspace.folder / FOLDER / self.submission
        for name, text in self.declarations.items():
            make_folder((laid_out / name).parent)
            write_atomically(laid_out / name, text=text)
        return laid_out


def declarations_of(folder: Path, *, study: Path, workspace: Workspace) -> dict[str, str]:
    """What machines that share no disk must know of a project: its declarations, and the study's file wherever it is.

    Nothing where the workspace has no store, and for the project that comes with knockout.
    """
    if find_store(workspace.folder) is None or folder == project.root():
        return {}
    declared = {path: str(path.relative_to(folder)) for pattern in DECLARATIONS for path in folder.glob(pattern)}
    declared.setdefault(study.absolute(), f"ablations/{study.name}")
    return {name: path.read_text() for path, name in sorted(declared.items())}


def write_request(request: Request, *, workspace: Workspace) -> None:
    """Lay a request in the workspace. Raises WorkspaceError."""
    path = _path(request.submission, workspace=workspace)
    make_folder(path.parent)
    write_json(path, data=asdict(request))
    if (store := find_store(workspace.folder)) is not None:
        store.put([(path, f"{FOLDER}/{path.name}")])


def has_request(submission: str, *, workspace: Workspace) -> bool:
    """Whether a submission was handed to a pool. Raises WorkspaceError."""
    path, store = _path(submission, workspace=workspace), find_store(workspace.folder)
    return path.exists() or (store is not None and store.has(f"{FOLDER}/{path.name}"))


def read_request(submission: str, *, workspace: Workspace) -> Request:
    """The request of a submission.

    Raises:
        WorkspaceError: there is none, or it is damaged.
    """
    path, store = _path(submission, workspace=workspace), find_store(workspace.folder)
    if store is not None and not path.exists() and store.has(f"{FOLDER}/{path.name}"):
        store.take({f"{FOLDER}/{path.name}": path})
    try:
        return _request(json.loads(path.read_bytes()))
    except FileNotFoundError:
        raise WorkspaceError(f"{path} is not there: '{submission}' was not submitted to this workspace") from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise WorkspaceError(f"{path} cannot be read ({error}): submit the study again") from None


def waiting_requests(ledger: Ledger, *, known: frozenset[str]) -> list[Request]:
    """The requests that no process has begun or called off, oldest first, whichever machine handed them over.

    `known` are the submissions of the ledger. Raises WorkspaceError.
    """
    return _unbegun(ledger, known=known, withdrawn=False)


def withdrawn_requests(ledger: Ledger, *, known: frozenset[str]) -> list[Request]:
    """The requests that were called off before a process began them, as `waiting_requests`."""
    return _unbegun(ledger, known=known, withdrawn=True)


def _unbegun(ledger: Ledger, *, known: frozenset[str], withdrawn: bool) -> list[Request]:
    workspace, store = ledger.workspace, find_store(ledger.workspace.folder)
    files = {path.name for path in (workspace.folder / FOLDER).glob("*.json")}
    files |= {name for name in store.names(FOLDER) if name.endswith(".json")} if store is not None else set()
    names = {Path(name).stem for name in files} - known
    stopped = stopped_among(ledger, submissions=names) if names else frozenset[str]()
    return [read_request(name, workspace=workspace) for name in sorted(names & stopped if withdrawn else names - stopped)]


def pool_of_lost(one: Submission, *, ledger: Ledger) -> str | None:
    """The pool that a lost submission was handed to; None for one of no pool, or that somebody stopped.

    One whose time is over has yet to conclude, and is the pool's. Raises WorkspaceError.
    """
    wanted = wanted_stop(ledger, submission=one.submission)
    if (wanted is not None and wanted.state != "timed-out") or not has_request(one.submission, workspace=ledger.workspace):
        return None
    return read_request(one.submission, workspace=ledger.workspace).pool


def withdraw(submission: str, *, ledger: Ledger) -> None:
    """Take back a request that no process has begun: whoever is told of it, on whatever machine, does nothing."""
    request_stop(ledger, submissions=[submission])


def _says(path: Path, *, text: str) -> bool:
    try:
        return path.read_text() == text
    except (OSError, ValueError):
        return False


def _path(submission: str, *, workspace: Workspace) -> Path:
    return workspace.folder / FOLDER / f"{submission}.json"


def _request(data: dict[str, Any]) -> Request:
    overrides, options = data.pop("overrides"), data.pop("options")
    overrides["settings"] = tuple(overrides["settings"])
    return Request(**data, overrides=Overrides(**overrides), options=Options(**options))
