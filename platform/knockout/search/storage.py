"""The database of all searches, as Optuna opens it.

The invariant: who finds it locked waits; a lock that another process holds for a while is no error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sql
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from sqlalchemy.exc import SQLAlchemyError

from knockout.errors import WorkspaceError
from knockout.search.database_file import REMEDY, database
from knockout.services.database import Database, find_database, store_url
from knockout.services.sqlite import trouble

MAKING = 5_707_122
"""The key of the server's lock that whoever makes Optuna's tables holds."""
BUSY_SECONDS = 120.0
"""So long a statement waits for another process's transaction; without it, SQLite's client gives up after five."""


def address(workspace: Path) -> str:
    """Where the searches of a workspace are: its own file, or the database that machines share."""
    return store_url(workspace, schema="optuna", file=database(workspace))


def is_there(workspace: Path) -> bool:
    """Whether there may be searches."""
    return find_database(workspace) is not None or database(workspace).exists()


def open_storage(url: str) -> RDBStorage:
    """Optuna's storage at an address; the tables are made when they are not there, by one process at a time.

    Raises:
        WorkspaceError: the database is damaged, or cannot be read or written.
    """
    with telling(url):
        return _opened(url)


@contextmanager
def telling(url: str) -> Iterator[None]:
    """While entered, what the database at an address cannot do is told as the workspace's error, in a sentence."""
    try:
        yield
    except (SQLAlchemyError, StorageInternalError) as error:
        raise _told(error, url=sql.make_url(url)) from error


def _told(error: Exception, *, url: sql.URL) -> WorkspaceError:
    if url.get_backend_name() == "sqlite":
        path = Path(url.database or "")
        if (found := trouble(error, path=path, remedy=REMEDY)) is not None:
            return found
        where = str(path)
    else:
        where = f"the searches in {Database(url.render_as_string(hide_password=False)).shown}"
    first, _, _ = str(error.__cause__ or error).partition("\n")
    return WorkspaceError(f"{where} cannot be used by Optuna: {first}")


def _opened(url: str) -> RDBStorage:
    if url.startswith("sqlite"):
        return RDBStorage(url, engine_kwargs={"connect_args": {"timeout": BUSY_SECONDS}})
    engine = sql.create_engine(url, poolclass=sql.NullPool)
    with engine.begin() as connection:
        connection.execute(sql.select(sql.func.pg_advisory_xact_lock(MAKING)))
        return RDBStorage(url, engine_kwargs={"poolclass": sql.NullPool})
