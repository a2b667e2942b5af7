"""What an MLflow store shows, read from its database without importing MLflow.

The invariant: nothing is written, made or migrated.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from knockout.tracking import naming
from knockout.tracking.store import BUSY_TIMEOUT_SECONDS, folder

_RUNS = """
SELECT runs.run_uuid, runs.status, runs.artifact_uri, experiments.name, own.value, state.value
FROM runs
JOIN experiments ON experiments.experiment_id = runs.experiment_id
JOIN tags AS own ON own.run_uuid = runs.run_uuid AND own.key = ?
LEFT JOIN tags AS state ON state.run_uuid = runs.run_uuid AND state.key = ?
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
    final: dict[str, float] = field(default_factory=dict)
    """What it came to, by metric."""


def database(workspace: Path) -> Path:
    """The store's SQLite file."""
    return folder(workspace) / "mlflow.db"


def damage(workspace: Path) -> str | None:
    """Why the store's file cannot be used, or None."""
    try:
        with _reading(workspace) as connection:
            said = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            connection.execute(_RUNS, (naming.IDENTITY, naming.STATE)).fetchone()
    except sqlite3.DatabaseError as error:
        return str(error)
    return None if said == "ok" else said


def shown(workspace: Path, *, key: str) -> dict[tuple[str, str], Shown]:
    """Every run that has the tag `key` (identity or submission), by its experiment's name and the tag's value.

    Of several with one value it is the oldest, which is the one that the mirror writes to.
    """
    with _reading(workspace) as connection:
        final: dict[str, dict[str, float]] = {}
        for run_id, metric, value in connection.execute(_FINALS):
            final.setdefault(run_id, {})[metric.removeprefix("final/")] = value
        return {
            (experiment, value): Shown(run_id, status, artifacts, state, final.get(run_id, {}))
            for run_id, status, artifacts, experiment, value, state in connection.execute(_RUNS, (key, naming.STATE))
        }


@contextmanager
def _reading(workspace: Path) -> Iterator[sqlite3.Connection]:
    uri = f"{database(workspace).as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_SECONDS)) as connection:
        yield connection
