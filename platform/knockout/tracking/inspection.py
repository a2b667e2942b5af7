"""What an MLflow store shows, read from its database, a file or one that machines share, without importing MLflow.

The invariant: nothing is written, made or migrated.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from knockout.services.database import find_database
from knockout.services.relocation import REMEDY
from knockout.services.sqlite import FOLDER, is_damage, trouble
from knockout.tracking import naming
from knockout.tracking.database_file import BUSY_TIMEOUT_SECONDS, NAME, is_held
from knockout.tracking.store import folder

Execute = Callable[[str, tuple[str, ...]], Iterable[Any]]
_RUNS = """
SELECT runs.run_uuid, runs.status, runs.artifact_uri, experiments.name, own.value, state.value, reason.value
FROM runs
JOIN experiments ON experiments.experiment_id = runs.experiment_id
JOIN tags AS own ON own.run_uuid = runs.run_uuid AND own.key = ?
LEFT JOIN tags AS state ON state.run_uuid = runs.run_uuid AND state.key = ?
LEFT JOIN tags AS reason ON reason.run_uuid = runs.run_uuid AND reason.key = ?
WHERE runs.lifecycle_stage = 'active'
ORDER BY runs.start_time DESC
"""
_FINALS = "SELECT run_uuid, key, value FROM latest_metrics WHERE key LIKE 'final/%' AND NOT is_nan"


@dataclass(frozen=True)
class Shown:
    """A run as MLflow shows it."""

    run_id: str
    status: str
    """RUNNING, FINISHED, FAILED or KILLED."""
    artifacts: str
    """The address of its files."""
    state: str | None
    """The ledger's word for how it ended, where it was told."""
    reason: str | None
    """Why it ended so, where it was told."""
    final: dict[str, float] = field(default_factory=dict)
    """What it came to, by metric."""


def database(workspace: Path) -> Path:
    """The store's SQLite file."""
    return folder(workspace) / NAME


def is_there(workspace: Path) -> bool:
    """Whether the workspace has a store. Raises WorkspaceError where the database cannot be reached."""
    shared = find_database(workspace)
    return database(workspace).exists() if shared is None else shared.has("runs", schema="mlflow")


def store_file(workspace: Path) -> tuple[int, int] | None:
    """Which file the store is (device, inode); None where it is none, or machines share a database."""
    try:
        found = database(workspace).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def is_waited_for(workspace: Path) -> bool:
    """Whether another process keeps writers of the store's file waiting."""
    return find_database(workspace) is None and database(workspace).is_file() and is_held(database(workspace))


def damage(workspace: Path) -> str | None:
    """Why the store's file cannot be used, or None. A database that machines share looks after itself.

    Raises:
        WorkspaceError: it cannot be looked at: it is locked, or may not be read.
    """
    if find_database(workspace) is not None:
        return None
    if database(workspace).is_dir():
        return FOLDER
    try:
        with _reading(workspace) as execute:
            ((said,),) = execute("PRAGMA quick_check(1)", ())
            next(iter(execute(_RUNS, (naming.IDENTITY, naming.STATE, naming.REASON))), None)
    except sqlite3.DatabaseError as error:
        if not is_damage(error) and (found := trouble(error, path=database(workspace), remedy=REMEDY)) is not None:
            raise found from None
        return str(error)
    return None if said == "ok" else said


def shown(workspace: Path, *, key: str) -> dict[tuple[str, str], Shown]:
    """Every run that has the tag `key` (identity or submission), by its experiment's name and the tag's value.

    Of several with one value it is the oldest, which is the one that the mirror writes to. Raises WorkspaceError where the
    store's file is damaged, or cannot be read.
    """
    with _telling(workspace), _reading(workspace) as execute:
        final: dict[str, dict[str, float]] = {}
        for run_id, metric, value in execute(_FINALS, ()):
            final.setdefault(run_id, {})[metric.removeprefix("final/")] = value
        return {
            (experiment, value): Shown(run_id, status, artifacts, state, reason, final.get(run_id, {}))
            for run_id, status, artifacts, experiment, value, state, reason in execute(
                _RUNS, (key, naming.STATE, naming.REASON)
            )
        }


@contextmanager
def _telling(workspace: Path) -> Iterator[None]:
    """While entered, what is wrong with the store's file is told as the workspace's error."""
    try:
        yield
    except sqlite3.Error as error:
        if (found := trouble(error, path=database(workspace), remedy=REMEDY)) is not None:
            raise found from None
        raise


@contextmanager
def _reading(workspace: Path) -> Iterator[Execute]:
    """What carries out a query, written as SQLite takes it."""
    shared = find_database(workspace)
    if shared is not None:
        with shared.connection() as connection:
            connection.execute("SET search_path = mlflow")
            yield lambda query, values: connection.execute(query.replace("%", "%%").replace("?", "%s").encode(), values)
        return
    uri = f"{database(workspace).as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_SECONDS)) as connection:
        yield connection.execute
