"""The ledger in a PostgreSQL database: how it is reached, and how its tables are made.

The invariant: a server that is restarted, or out of reach for a while, is waited for; and tables are made, and columns
added, by one process at a time, whatever machine it is on.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import sqlalchemy as sql
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.schema import CreateColumn

from knockout.errors import WorkspaceError
from knockout.ledger.dialects import one_at_a_time
from knockout.services.database import PATIENCE_SECONDS, PAUSE_SECONDS, Database, connect_arguments, patiently

Given = ParamSpec("Given")
Found = TypeVar("Found")
SCHEMA = "knockout"
about = sql.Table("about", sql.MetaData(), sql.Column("format", sql.Integer, primary_key=True))
"""Which format the tables have: one row."""


class ConnectionLost(WorkspaceError):
    """The database's server went away under a statement; whether it was carried out is not known."""


def reconnecting(method: Callable[Given, Found]) -> Callable[Given, Found]:
    """A method that is asked again, for a while, when the server went away under it; to ask twice changes nothing."""

    @functools.wraps(method)
    def patient(*args: Given.args, **kwargs: Given.kwargs) -> Found:
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return method(*args, **kwargs)
            except ConnectionLost:
                if time.monotonic() > until:
                    raise
                time.sleep(PAUSE_SECONDS)

    return patient


def open_postgres(database: Database) -> Engine:
    """An engine whose new connections wait for the server, and whose kept ones are tried before they are used."""
    engine = sql.create_engine(
        database.url(), connect_args=connect_arguments(SCHEMA), pool_pre_ping=True, hide_parameters=True
    )

    @event.listens_for(engine, "do_connect")
    def _wait(dialect: Any, record: object, arguments: list[Any], named: dict[str, Any]) -> Any:
        return patiently(lambda: dialect.connect(*arguments, **named))

    return engine


def bring_up(engine: Engine, *, database: Database, schema: sql.MetaData, format_: int) -> None:
    """Make the tables, or add the columns that they lack.

    Raises:
        WorkspaceError: they are of a newer knockout, or lack a column that cannot be filled in.
    """
    database.make(schema=SCHEMA)
    with engine.begin() as connection:
        one_at_a_time(connection, what="tables")
        about.create(connection, checkfirst=True)
        known = connection.execute(sql.select(about.c.format)).scalar_one_or_none()
        if known is not None and known > format_:
            raise WorkspaceError(
                f"the ledger in {database.shown} was made by a newer knockout (format {known}, this one reads {format_}): "
                f"use that version"
            )
        schema.create_all(connection)
        for column in _lacking(connection, schema=schema):
            connection.exec_driver_sql(f"ALTER TABLE {column.table.name} ADD COLUMN {_declared(column, database=database)}")
        if known is None:
            connection.execute(about.insert().values(format=format_))


def _lacking(connection: Connection, *, schema: sql.MetaData) -> list[sql.Column[Any]]:
    inspector = sql.inspect(connection)
    known = {table.name: {found["name"] for found in inspector.get_columns(table.name)} for table in schema.sorted_tables}
    return [column for table in schema.sorted_tables for column in table.columns if column.name not in known[table.name]]


def _declared(column: sql.Column[Any], *, database: Database) -> str:
    from sqlalchemy.dialects import postgresql

    if not column.nullable:
        raise WorkspaceError(
            f"the ledger in {database.shown} was made by an older knockout and lacks {column.table.name}.{column.name}, "
            f"which this one cannot fill in: use that version, or another database"
        )
    return str(CreateColumn(column).compile(dialect=postgresql.dialect()))
