"""What SQLite and PostgreSQL say in different words, so that the rest of the ledger is written once.

The invariant: the time in a lease is the database's own, never that of a host whose clock may be wrong.
"""

from __future__ import annotations

import hashlib
from typing import Any

import sqlalchemy as sql
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

POSTGRES = "postgresql"


class DatabaseTime(FunctionElement[float]):
    """The database's clock, in seconds since 1970."""

    type = sql.Float()
    inherit_cache = True


@compiles(DatabaseTime, "sqlite")
def _time_of_sqlite(element: DatabaseTime, compiler: Any, **_: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(DatabaseTime, POSTGRES)
def _time_of_postgres(element: DatabaseTime, compiler: Any, **_: Any) -> str:
    return "CAST(extract(epoch FROM clock_timestamp()) AS double precision)"


def insert(table: sql.Table, *, bind: Connection | Engine) -> sqlite.Insert | postgresql.Insert:
    """An insertion that may say what is to happen when the row is there."""
    return postgresql.insert(table) if bind.dialect.name == POSTGRES else sqlite.insert(table)


def in_order_of_insertion(bind: Connection | Engine) -> sql.TextClause:
    """The order in which the rows of a table that is only inserted into came."""
    return sql.text("ctid" if bind.dialect.name == POSTGRES else "rowid")


def member(column: sql.Column[Any], *, name: str, bind: Connection | Engine) -> sql.ColumnElement[Any]:
    """A text in the JSON object that a column of text holds."""
    if bind.dialect.name == POSTGRES:
        return sql.cast(column, sql.JSON)[name].as_string()
    return sql.func.json_extract(column, f"$.{name}")


def one_at_a_time(connection: Connection, *, what: str, shared: bool = False) -> None:
    """Until the transaction ends, keep others out that name the same thing; who shares it keeps out only who does not.

    SQLite has one writer at a time in any case.
    """
    if connection.dialect.name == POSTGRES:
        key = int.from_bytes(hashlib.sha256(what.encode()).digest()[:8], "big", signed=True)
        take = sql.func.pg_advisory_xact_lock_shared if shared else sql.func.pg_advisory_xact_lock
        connection.execute(sql.select(take(sql.cast(key, sql.BigInteger))))
