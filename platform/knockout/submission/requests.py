"""What was submitted to a pool, as a small file in the workspace: an address names it, and whoever takes it reads it there.

The invariant: written once, whole, before anybody is told of the submission.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from knockout.declare.load import Loaded, Overrides, find_study, load_study
from knockout.errors import WorkspaceError
from knockout.ledger.stops import request_stop
from knockout.ledger.store import Ledger
from knockout.ledger.workspace import Workspace, make_folder, write_json
from knockout.services.objects import find_store
from knockout.submission.options import Options

FOLDER = "submissions"


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

    @property
    def study_name(self) -> str:
        """The study's name, or that of its file."""
        return Path(self.study).stem

    def load(self) -> Loaded:
        """The study as it is now, seen from the current folder; raises as `load_study`."""
        return load_study(find_study(self.study), overrides=self.overrides)


def write_request(request: Request, *, workspace: Workspace) -> None:
    """Lay a request in the workspace. Raises WorkspaceError."""
    path = _path(request.submission, workspace=workspace)
    make_folder(path.parent)
    write_json(path, data=asdict(request))
    if (store := find_store(workspace.folder)) is not None:
        store.put([(path, f"{FOLDER}/{path.name}")])


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


def waiting_requests(workspace: Workspace, *, known: frozenset[str]) -> list[Request]:
    """The requests that no process has begun or called off, oldest first; `known` are the submissions of the ledger."""
    paths = sorted((workspace.folder / FOLDER).glob("*.json"))
    return [read_request(path.stem, workspace=workspace) for path in paths if path.stem not in known]


def withdraw(submission: str, *, ledger: Ledger) -> None:
    """Take back a request that no process has begun: whoever is told of it, on whatever machine, does nothing."""
    request_stop(ledger, submissions=[submission])
    _path(submission, workspace=ledger.workspace).unlink(missing_ok=True)


def _path(submission: str, *, workspace: Workspace) -> Path:
    return workspace.folder / FOLDER / f"{submission}.json"


def _request(data: dict[str, Any]) -> Request:
    overrides, options = data.pop("overrides"), data.pop("options")
    overrides["settings"] = tuple(overrides["settings"])
    return Request(**data, overrides=Overrides(**overrides), options=Options(**options))
