"""The ledger's tables, and how its database is opened.

The invariant: a run is one row, whoever asks for it; a submission asks for runs by their identity.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from sqlalchemy import event
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError

from knockout.errors import WorkspaceError
from knockout.ledger.postgres import ConnectionLost, open_postgres
from knockout.ledger.reserve import is_full
from knockout.ledger.workspace import Workspace
from knockout.services.database import find_database
from knockout.services.sqlite import is_damage, may_be_full

TAKEN_UP = "the next run of a study takes up the results that lie in runs/"
"""What becomes of results without a ledger."""


class NoRoom(WorkspaceError):
    """The disk has no room for what the ledger was to record."""


class LedgerLost(WorkspaceError):
    """The ledger's file is no longer the one that was opened: nothing can be recorded any more."""


schema = sql.MetaData()
runs = sql.Table(
    "runs",
    schema,
    sql.Column("identity", sql.String(64), primary_key=True),
    sql.Column("meaning", sql.Text, nullable=False),
    sql.Column("state", sql.String(16), nullable=False, index=True),
    sql.Column("reason", sql.Text),
    sql.Column("attempts", sql.Integer, nullable=False, default=0),
    sql.Column("step", sql.BigInteger, nullable=False, default=0),
    sql.Column("planned_steps", sql.BigInteger, nullable=False),
    sql.Column("flops", sql.Float, nullable=False),
    sql.Column("host", sql.String(255)),
    sql.Column("pid", sql.Integer),
    sql.Column("process_started", sql.String(64)),
    sql.Column("heartbeat", sql.Float),
    sql.Column("created", sql.Float, nullable=False),
    sql.Column("finished", sql.Float),
    sql.Column("seconds", sql.Float, nullable=False, default=0.0),
    sql.Column("metrics", sql.Text, nullable=False, default="{}"),
)
submissions = sql.Table(
    "submissions",
    schema,
    sql.Column("submission", sql.String(64), primary_key=True),
    sql.Column("study", sql.String(128), nullable=False, index=True),
    sql.Column("state", sql.String(16), nullable=False),
    sql.Column("reason", sql.Text),
    sql.Column("plan", sql.Text, nullable=False),
    sql.Column("arguments", sql.Text, nullable=False, default=""),
    sql.Column("host", sql.String(255)),
    sql.Column("pid", sql.Integer),
    sql.Column("process_started", sql.String(64)),
    sql.Column("created", sql.Float, nullable=False),
    sql.Column("finished", sql.Float),
    sql.Column("facts", sql.Text),
    sql.Column("mirrored", sql.Boolean),
    sql.Column("shown", sql.Boolean),
    sql.Column("heartbeat", sql.Float),
)
asks = sql.Table(
    "asks",
    schema,
    sql.Column("submission", sql.String(64), primary_key=True),
    sql.Column("identity", sql.String(64), primary_key=True),
    sql.Column("variant", sql.Text, primary_key=True),
    sql.Column("size", sql.String(128), nullable=False),
    sql.Column("seed", sql.Integer, nullable=False),
    sql.Column("role", sql.String(16), nullable=False),
)
flow_runs = sql.Table(
    "flow_runs",
    schema,
    sql.Column("submission", sql.String(64), primary_key=True),
    sql.Column("database", sql.String(64), index=True),
)
speeds = sql.Table(
    "speeds",
    schema,
    sql.Column("machine", sql.String(255), primary_key=True),
    sql.Column("versions", sql.String(255), primary_key=True),
    sql.Column("shape", sql.String(64), primary_key=True),
    sql.Column("origin", sql.String(64), primary_key=True),
    sql.Column("start_seconds", sql.Float, nullable=False),
    sql.Column("step_seconds", sql.Float, nullable=False),
    sql.Column("evaluation_seconds", sql.Float, nullable=False),
    sql.Column("measured", sql.Float, nullable=False),
)
place = sql.Table(
    "place",
    schema,
    sql.Column("folder", sql.String(4096), primary_key=True),
    sql.Column("inode", sql.BigInteger, nullable=False),
)
stops = sql.Table(
    "stops",
    schema,
    sql.Column("submission", sql.String(64), primary_key=True),
    sql.Column("requested", sql.Float, nullable=False),
    sql.Column("state", sql.String(16)),
    sql.Column("reason", sql.Text),
)
ticks = sql.Table(
    "ticks",
    schema,
    sql.Column("schedule", sql.String(128), primary_key=True),
    sql.Column("due", sql.Float, primary_key=True),
    sql.Column("state", sql.String(16), nullable=False),
    sql.Column("reason", sql.Text),
    sql.Column("host", sql.String(255), nullable=False),
    sql.Column("pid", sql.Integer, nullable=False),
    sql.Column("process_started", sql.String(64), nullable=False),
    sql.Column("started", sql.Float, nullable=False),
    sql.Column("finished", sql.Float),
)


@contextmanager
def telling(workspace: Workspace, *, done: str) -> Iterator[None]:
    """While entered, what the database cannot do is told as the workspace's error: it cannot be `done`."""
    try:
        yield
    except DBAPIError as error:
        raise kind_of(error)(refused(error, workspace=workspace, done=done)) from None


def kind_of(error: DBAPIError) -> type[WorkspaceError]:
    """The workspace's error that an error of the database is told as."""
    if error.connection_invalidated:
        return ConnectionLost
    return NoRoom if isinstance(error.orig, sqlite3.Error) and may_be_full(error.orig) else WorkspaceError


def refused(error: DBAPIError, *, workspace: Workspace, done: str) -> str:
    """What an error of the database says of the ledger, and what helps where its content is none."""
    if isinstance(error.orig, sqlite3.Error) and is_damage(error.orig):
        return damaged(workspace.ledger, str(error.orig))
    helps = "; its disk is full: `knockout gc` shows what may go" if is_full(workspace.folder) else ""
    return f"the ledger {ledger_place(workspace)} cannot be {done}: {error.orig}{helps}"


def damaged(path: Path, why: str) -> str:
    """That a ledger is no sound database, and what helps."""
    return f"the ledger {path} is damaged ({why}): put a copy of it in its place, or move it away; {TAKEN_UP}"


def ledger_place(workspace: Workspace) -> str:
    """Where a workspace's ledger is, for messages."""
    database = find_database(workspace.folder)
    return str(workspace.ledger) if database is None else f"in {database.shown}"


def open_engine(workspace: Workspace) -> Engine:
    """The workspace's database: its own file, or the PostgreSQL database that it shares with others.

    Raises:
        WorkspaceError: the address of the database is wrong, or its driver is not installed.
    """
    database = find_database(workspace.folder)
    return _open_sqlite(workspace) if database is None else open_postgres(database)


def _open_sqlite(workspace: Workspace) -> Engine:
    """SQLite in WAL mode, in which readers and one writer do not wait for each other."""
    engine = sql.create_engine(f"sqlite:///{workspace.ledger}", connect_args={"timeout": 60.0})
    file = _File(workspace.ledger)

    @event.listens_for(engine, "do_connect")
    def _look(*_: object) -> None:
        file.check()  # SQLite would make an empty one in its place

    @event.listens_for(engine, "connect")
    def _set_up(connection: Any, _: object) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        file.note()

    @event.listens_for(engine, "checkout")
    def _look_again(*_: object) -> None:
        file.check()

    return engine


class _File:
    """The file that a process has opened, and whether it is still there: what is written to a removed one is lost."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.opened: tuple[int, int] | None = None

    def note(self) -> None:
        """What is there now is the ledger."""
        self.opened = self.opened or self._found()

    def check(self) -> None:
        """Raise LedgerLost where it is no longer there, or another one is."""
        if self.opened is not None and (found := self._found()) != self.opened:
            happened = "was removed" if found is None else "is another file than it was"
            raise LedgerLost(
                f"the ledger {self.path} {happened} while this command was using it, which ends with that; {TAKEN_UP}"
            )

    def _found(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino
