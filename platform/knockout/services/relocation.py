"""MLflow's addresses after a workspace was copied or moved.

MLflow keeps the whole address of each run's artifacts, so a copy would read from, and write into, the workspace that it
was copied from (https://github.com/mlflow/mlflow/issues/3144). The invariant: every address below the store's own root
lies in the workspace that holds the database; addresses elsewhere are the user's and stay.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from knockout.services.database import find_database
from knockout.services.sqlite import BUSY_TIMEOUT_SECONDS, trouble

COLUMNS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)
"""Where MLflow keeps addresses of artifacts."""
REMEDY = "`knockout doctor --repair` builds it again from the ledger"
"""What mends a damaged MLflow database."""


@dataclass(frozen=True)
class Elsewhere:
    """Addresses that name another workspace."""

    root: str
    """The address under which that one kept its artifacts."""
    count: int


def artifact_root(workspace: Path) -> str:
    """The file URI below which a workspace's experiments keep their artifacts."""
    return (workspace.resolve() / "mlflow" / "artifacts").as_uri()


def elsewhere(workspace: Path) -> Elsewhere | None:
    """What of a workspace's MLflow database names another workspace, or None. Changes nothing.

    Raises:
        WorkspaceError: the database is damaged, or cannot be read or written.
    """
    if find_database(workspace) is not None:
        return None  # it lies in no workspace
    with _open(workspace) as connection:
        root = _recorded_root(connection)
        if root is None or root == artifact_root(workspace):
            return None
        count = sum(_count(connection, table=table, column=column, root=root) for table, column in _present(connection))
    return Elsewhere(root, count)


def relocate(workspace: Path) -> Elsewhere | None:
    """Make the addresses those of this workspace, all or none; what they named before, or None where all was right.

    Raises:
        WorkspaceError: the database is damaged, or cannot be read or written.
    """
    found = elsewhere(workspace)
    if found is not None:
        with _open(workspace) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for table, column in _present(connection):
                connection.execute(
                    f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE substr({column}, 1, ?) = ?",
                    (artifact_root(workspace), len(found.root) + 1, len(found.root) + 1, f"{found.root}/"),
                )
            connection.execute("COMMIT")
    return found


@contextmanager
def _open(workspace: Path) -> Iterator[sqlite3.Connection]:
    """The workspace's MLflow database, without MLflow."""
    path = workspace.resolve() / "mlflow" / "mlflow.db"
    uri = f"{path.as_uri()}?mode=rw"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None)) as connection:
            yield connection
    except sqlite3.Error as error:
        if (found := trouble(error, path=path, remedy=REMEDY)) is not None:
            raise found from None
        raise


def _recorded_root(connection: sqlite3.Connection) -> str | None:
    """The root of the artifacts when the store was made: that of MLflow's own first experiment, ROOT/0."""
    if "experiments" not in _tables(connection):
        return None
    row = connection.execute("SELECT artifact_location FROM experiments WHERE experiment_id = 0").fetchone()
    return row[0].removesuffix("/0") if row and row[0] and row[0].endswith("/0") else None


def _count(connection: sqlite3.Connection, *, table: str, column: str, root: str) -> int:
    query = f"SELECT count(*) FROM {table} WHERE substr({column}, 1, ?) = ?"
    return connection.execute(query, (len(root) + 1, f"{root}/")).fetchone()[0]


def _present(connection: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """Those of the columns that this version of MLflow has."""
    known = _tables(connection)
    for table, column in COLUMNS:
        if table in known and column in {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}:
            yield table, column


def _tables(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
