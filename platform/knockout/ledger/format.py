"""Which knockout made a ledger, and what an older one lacks.

The invariant: a ledger is only ever added to. One from a newer format is not touched, and one that lacks what cannot be
filled in is refused in words.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DatabaseError
from sqlalchemy.schema import CreateColumn

from knockout.errors import WorkspaceError
from knockout.ledger import postgres
from knockout.ledger.tables import TAKEN_UP, damaged, refused, schema
from knockout.ledger.workspace import VARIABLE, Workspace
from knockout.services.database import find_database

FORMAT = 1
"""Raised when an older knockout can no longer read what this one writes; a new column that may be empty needs it not."""


def bring_up(engine: Engine, *, workspace: Workspace) -> None:
    """Make the tables of a new ledger, or give an older one the columns that it lacks, after a copy of it was kept.

    Raises:
        WorkspaceError: the ledger is of a newer knockout, or lacks a column that cannot be filled in.
    """
    if (database := find_database(workspace.folder)) is not None:
        postgres.bring_up(engine, database=database, schema=schema, format_=FORMAT)
        return
    with engine.connect() as connection:
        version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
        missing = lacking(connection)
    if (wrong := _unreadable(version, missing, path=workspace.ledger)) is not None:
        raise WorkspaceError(wrong)
    schema.create_all(engine)
    if missing:
        _copy_aside(workspace.ledger)
    if missing or version < FORMAT:
        with engine.begin() as connection:
            for column in missing:
                connection.exec_driver_sql(f"ALTER TABLE {column.table.name} ADD COLUMN {_declared(column, engine=engine)}")
            connection.exec_driver_sql(f"PRAGMA user_version = {FORMAT}")


def lacking(connection: Connection) -> list[sql.Column[Any]]:
    """The columns that the tables of a ledger do not have; none of tables that are not there at all."""
    missing: list[sql.Column[Any]] = []
    for table in schema.sorted_tables:
        known = {row[1] for row in connection.exec_driver_sql(f"PRAGMA table_info({table.name})")}
        missing += [column for column in table.columns if known and column.name not in known]
    return missing


def misfit(workspace: Workspace) -> str | None:
    """What is wrong with the format of a workspace's ledger, in words, or None. Changes nothing.

    Raises:
        WorkspaceError: the ledger is of a newer knockout, lacks what cannot be filled in, or is damaged.
    """
    path = workspace.ledger
    if not path.exists():
        return None
    engine = sql.create_engine(f"sqlite:///file:{path}?mode=ro&uri=true")
    try:
        with engine.connect() as connection:
            sound = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
            version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
            missing = lacking(connection)
    except DatabaseError as error:
        raise WorkspaceError(refused(error, workspace=workspace, done="read")) from None
    finally:
        engine.dispose()
    if sound != "ok":
        raise WorkspaceError(damaged(path, sound))
    if (wrong := _unreadable(version, missing, path=path)) is not None:
        raise WorkspaceError(wrong)
    return f"made by an older knockout: it lacks {_named(missing)}" if missing else None


def _unreadable(version: int, missing: list[sql.Column[Any]], *, path: Path) -> str | None:
    if version > FORMAT:
        return (
            f"the ledger {path} was made by a newer knockout (format {version}, this one reads {FORMAT}): "
            f"use that version, or set {VARIABLE} to a workspace of this one's own"
        )
    if empty := [column for column in missing if not column.nullable and column.default is None]:
        return (
            f"the ledger {path} was made by an older knockout and lacks {_named(empty)}, which this one cannot fill in: "
            f"use that version, or move the file away; {TAKEN_UP}"
        )
    return None


def _named(columns: list[sql.Column[Any]]) -> str:
    return ", ".join(f"{column.table.name}.{column.name}" for column in columns)


def _declared(column: sql.Column[Any], *, engine: Engine) -> str:
    """The column as its table declares it; one that may not be empty begins with its default."""
    declared = str(CreateColumn(column).compile(engine))
    if column.nullable or column.default is None:
        return declared
    value = column.default.arg  # pyright: ignore[reportAttributeAccessIssue]  # defaults of the ledger are plain values
    return f"{declared} DEFAULT {value!r}"


def _copy_aside(ledger: Path) -> None:
    """Keep an older ledger as it was, as `ledger.db.before-TIME`."""
    target = ledger.with_name(f"{ledger.name}.before-{time.strftime('%Y%m%d-%H%M%S')}")
    with closing(sqlite3.connect(ledger, timeout=60)) as source, closing(sqlite3.connect(target)) as copy:
        source.backup(copy)
