"""MLflow's SQLite file, made and upgraded so that a process that dies meanwhile leaves it as it was.

The invariant: tables are made and migrated in a draft under a temporary name. What is whole then takes the file's place in
one transaction (SQLite's backup interface), also where other processes have the file open. A draft that fails is gone at
once: on a full disk the ledger needs its room.
"""

from __future__ import annotations

import importlib.metadata
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from knockout.services.sqlite import is_locked

BUSY_TIMEOUT_SECONDS = 60.0
HELD_SECONDS = 2.0
NAME = "mlflow.db"
DRAFT = ".mlflow.db.new"
EMPTIED = ("", "-wal")
"""Of what SQLite keeps of a database the parts that hold its content, and that no process has in its memory."""
HALF_MADE = f"{NAME}.half-made"
"""Where a file is kept that a killed process had begun to make."""


def make_ready(place: Path, *, artifacts: str, was_whole: bool) -> None:
    """Bring the file in the folder `place` to the tables of the installed MLflow, which is imported, with the lock held.

    `artifacts` is the address of the store's artifacts. A file that an older MLflow has made is copied aside first, as
    `mlflow.db.before-VERSION`. One that never `was_whole` and has no run is what a killed process left of its making: it
    is copied aside too, and made anew.

    Raises MlflowException, or an error of alembic or SQLAlchemy, where this MLflow cannot use the file, which is unchanged.
    """
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    database = place / NAME
    has_tables = database.exists() and use_wal(database)
    made_by = revision(database) if has_tables else None
    if has_tables and made_by == revisions()[0]:
        # The constructor makes the default experiment, where it is missing, in one transaction.
        SqlAlchemyStore(address(database), artifacts).engine.dispose()
        return
    known = made_by in (None, *revisions())
    upgrades = has_tables and (was_whole or not known or has_runs(database))
    with _passing(place / DRAFT) as draft:
        use_wal(draft)
        if upgrades:
            copy(database, to=draft)
            upgrade(draft)
        SqlAlchemyStore(address(draft), artifacts).engine.dispose()  # makes the tables of an empty database
        if has_tables:
            copy_aside(place, name=f"{NAME}.before-{importlib.metadata.version('mlflow')}" if upgrades else HALF_MADE)
        _replace(database, draft=draft)


@contextmanager
def _passing(temporary: Path) -> Iterator[Path]:
    """While entered, a temporary file may be there; nothing of it is before and afterwards, however that ends."""
    remove(temporary)
    try:
        yield temporary
    finally:
        remove(temporary)


def _replace(database: Path, *, draft: Path) -> None:
    """Make the file hold what the draft does; one that was not there is not there afterwards, where that fails."""
    was_there = database.exists()
    try:
        copy(draft, to=database)
        use_wal(database)
    except BaseException:
        if not was_there:
            remove(database)
        raise


def address(database: Path) -> str:
    """The address of a file as MLflow takes it."""
    return f"sqlite:///{database}"


def use_wal(database: Path) -> bool:
    """Turn on write-ahead logging: a writer waits 0.2 s at most, not 3 s. Returns whether it has tables."""
    with closing(sqlite3.connect(database, timeout=BUSY_TIMEOUT_SECONDS)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        return connection.execute("SELECT count(*) FROM sqlite_master WHERE type = 'table'").fetchone()[0] > 0


def revision(database: Path) -> str | None:
    """The newest migration that a file has been through; None where it has been through none."""
    with closing(sqlite3.connect(database, timeout=BUSY_TIMEOUT_SECONDS)) as connection:
        if not _has_table(connection, "alembic_version"):
            return None
        found = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return found[0] if found is not None else None


def revisions() -> list[str]:
    """Every migration that the installed MLflow knows, newest first."""
    from alembic.script import ScriptDirectory
    from mlflow.store.db import utils

    scripts = ScriptDirectory.from_config(utils._get_alembic_config("sqlite://"))
    return [script.revision for script in scripts.walk_revisions()]


def is_held(database: Path) -> bool:
    """Whether another connection keeps a writer waiting: for longer than any transaction of a mirror takes."""
    try:
        with closing(sqlite3.connect(database, timeout=HELD_SECONDS, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
    except sqlite3.Error as error:
        return is_locked(error)
    return False


def has_runs(database: Path) -> bool:
    """Whether a run is recorded in the file, of whatever version."""
    with closing(sqlite3.connect(database, timeout=BUSY_TIMEOUT_SECONDS)) as connection:
        return _has_table(connection, "runs") and connection.execute("SELECT 1 FROM runs LIMIT 1").fetchone() is not None


def _has_table(connection: sqlite3.Connection, name: str) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    return connection.execute(query, (name,)).fetchone() is not None


def upgrade(database: Path) -> None:
    """Do what `mlflow db upgrade` does."""
    from mlflow.store.db import utils

    engine = utils.create_sqlalchemy_engine_with_retry(address(database))
    try:
        utils._upgrade_db(engine)
    finally:
        engine.dispose()


def copy(database: Path, *, to: Path) -> None:
    """Make the one file hold what the other does, all or nothing."""
    with (
        closing(sqlite3.connect(database, timeout=BUSY_TIMEOUT_SECONDS)) as source,
        closing(sqlite3.connect(to, timeout=BUSY_TIMEOUT_SECONDS)) as target,
    ):
        source.backup(target)


def copy_aside(place: Path, *, name: str) -> None:
    """Keep the file as it is under another name; a copy that is there already stays, and this one gets a number."""
    target, number = place / name, 1
    while target.exists():
        number += 1
        target = place / f"{name}-{number}"
    with _passing(place / f".{NAME}.aside") as begun:
        copy(place / NAME, to=begun)
        use_rollback_journal(begun)
        os.replace(begun, target)


def use_rollback_journal(database: Path) -> None:
    """Have everything in the one file, so that it can be moved."""
    with closing(sqlite3.connect(database, timeout=BUSY_TIMEOUT_SECONDS)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")


def remove(database: Path) -> None:
    """Take away a file, and what SQLite keeps beside it; emptied first, since a connection that is open keeps its room."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        path = database.with_name(database.name + suffix)
        if suffix in EMPTIED and path.exists():
            os.truncate(path, 0)
        path.unlink(missing_ok=True)
