"""The database of all searches, as Optuna opens it.

The invariant: who finds it locked waits; a lock that another process holds for a while is no error.
"""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sql
from optuna.storages import RDBStorage

from knockout.services.database import find_database, store_url

MAKING = 5_707_122
"""The key of the server's lock that whoever makes Optuna's tables holds."""
BUSY_SECONDS = 120.0
"""So long a statement waits for another process's transaction; without it, SQLite's client gives up after five."""


def address(workspace: Path) -> str:
    """Where the searches of a workspace are: its own file, or the database that machines share."""
    return store_url(workspace, schema="optuna", file=_file(workspace))


def is_there(workspace: Path) -> bool:
    """Whether there may be searches."""
    return find_database(workspace) is not None or _file(workspace).exists()


def open_storage(url: str) -> RDBStorage:
    """Optuna's storage at an address; the tables are made when they are not there, by one process at a time."""
    if url.startswith("sqlite"):
        return RDBStorage(url, engine_kwargs={"connect_args": {"timeout": BUSY_SECONDS}})
    engine = sql.create_engine(url, poolclass=sql.NullPool)
    with engine.begin() as connection:
        connection.execute(sql.select(sql.func.pg_advisory_xact_lock(MAKING)))
        return RDBStorage(url, engine_kwargs={"poolclass": sql.NullPool})


def _file(workspace: Path) -> Path:
    return workspace / "optuna.db"
