"""One PostgreSQL database for what several machines share: the ledger, searches, MLflow's and Prefect's own tables.

Its address is `$KNOCKOUT_DATABASE`, or the one line of the file `database` in the workspace. Without one, each of them is
an SQLite file in the workspace.

The invariant: each has a schema of its own, so that tables of one name never meet; and the address, which may hold a
password, is in no message, no command line and no file that knockout writes.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from knockout.errors import WorkspaceError

if TYPE_CHECKING:
    from psycopg import Connection
    from sqlalchemy.engine import URL

VARIABLE = "KNOCKOUT_DATABASE"
FILE = "database"
"""In the workspace, for those who would rather not set a variable."""
SECRETS = (VARIABLE, "PGPASSWORD")
"""What a process needs in its environment to reach the database; training processes have none of it."""
SCHEMES = ("postgresql", "postgres")
CONNECT_SECONDS = 10
CUT_OFF: Mapping[str, Any] = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,  # milliseconds
}
"""A connection whose other end is gone without a word is given up after some 20 s, not after many minutes."""
_FORGETTING = "-ctcp_keepalives_idle=20 -ctcp_keepalives_interval=10 -ctcp_keepalives_count=3 -ctcp_user_timeout=50000"
"""The server gives up a client that is gone without a word, and what it held, after about 50 s."""
PATIENCE_SECONDS = 90.0
"""A server that does not answer (it is being restarted, or the network is) is asked again for so long."""
PAUSE_SECONDS = 0.5
IDLE_SECONDS = 30
"""A transaction in which nothing happens for so long is ended by the server: its client is cut off."""
_PREPARING = 5_707_121
"""The key of the server's lock that whoever makes or changes tables holds."""

Schema = Literal["knockout", "optuna", "mlflow", "prefect"]
Driver = Literal["psycopg", "asyncpg"]


@dataclass(frozen=True)
class Database:
    """A PostgreSQL database, by its address."""

    address: str

    def __repr__(self) -> str:
        return f"Database({self.shown})"

    @property
    def shown(self) -> str:
        """The address for people: without user, password and options."""
        url = self._url()
        return f"postgresql://{url.host or 'localhost'}{f':{url.port}' if url.port else ''}/{url.database or ''}"

    def url(self, *, driver: Driver = "psycopg", schema: Schema | None = None) -> str:
        """The address as SQLAlchemy takes it, password and all; new connections then look into one schema only."""
        url = self._url().set(drivername=f"postgresql+{driver}")
        if schema is not None:
            url = url.update_query_dict(
                {"options": _options(schema), **{name: str(value) for name, value in CUT_OFF.items()}}
            )
        return url.render_as_string(hide_password=False)

    def make(self, *, schema: Schema) -> None:
        """Make a schema that is not there.

        Raises:
            WorkspaceError: the database cannot be reached or written, or its driver is not installed.
        """
        import psycopg

        try:
            with self.connection() as connection:
                connection.execute("SELECT pg_advisory_xact_lock(%s)", [_PREPARING])
                connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
        except psycopg.Error as error:
            raise WorkspaceError(f"the database {self.shown} cannot be written: {_first_line(error)}") from None

    def has(self, table: str, *, schema: Schema) -> bool:
        """Whether a table is there. Raises WorkspaceError where the database cannot be reached."""
        import psycopg

        try:
            with self.connection() as connection:
                found = connection.execute("SELECT to_regclass(%s) IS NOT NULL", [f"{schema}.{table}"]).fetchone()
        except psycopg.Error as error:
            raise WorkspaceError(f"the database {self.shown} cannot be read: {_first_line(error)}") from None
        return bool(found and found[0])

    def schema_of(self, extension: str) -> str | None:
        """The schema in which an extension lies; None where it is not made yet. Raises WorkspaceError."""
        import psycopg

        query = "SELECT nspname FROM pg_extension JOIN pg_namespace ON pg_namespace.oid = extnamespace WHERE extname = %s"
        try:
            with self.connection() as connection:
                found = connection.execute(query, [extension]).fetchone()
        except psycopg.Error as error:
            raise WorkspaceError(f"the database {self.shown} cannot be read: {_first_line(error)}") from None
        return found[0] if found is not None else None

    @contextmanager
    def turn(self, what: str) -> Iterator[bool]:
        """Whether this process has the turn at something that one process of all machines may do at a time, until it is
        left, or the connection is lost."""
        with self.connection() as connection:
            connection.autocommit = True
            found = connection.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", [what]).fetchone()
            yield bool(found and found[0])

    def connection(self) -> Connection[Any]:
        """A connection of psycopg's own, which waits for a server that is being started."""
        import psycopg

        url = self._url().set(drivername="postgresql").render_as_string(hide_password=False)
        return patiently(lambda: psycopg.connect(url, connect_timeout=CONNECT_SECONDS, options=_FORGETTING, **CUT_OFF))

    def _url(self) -> URL:
        from sqlalchemy.engine import make_url

        return make_url(self.address)


def find_database(workspace: Path) -> Database | None:
    """The database of a workspace; None where it keeps files.

    Raises:
        WorkspaceError: the address is none of PostgreSQL's, or the driver is not installed.
    """
    path = workspace / FILE
    address = os.environ.get(VARIABLE) or (path.read_text().strip() if path.is_file() else "")
    if not address:
        return None
    where = f"${VARIABLE}" if os.environ.get(VARIABLE) else str(path)
    if address.partition("://")[0].partition("+")[0] not in SCHEMES:
        raise WorkspaceError(f"{where}: not the address of a PostgreSQL database: postgresql://USER@HOST/NAME")
    if importlib.util.find_spec("psycopg") is None:
        raise WorkspaceError(f"{where} names a PostgreSQL database, which needs `pip install 'knockout[postgres]'`")
    database = Database(address.replace("postgres://", "postgresql://", 1))
    try:
        database.shown  # noqa: B018  # what cannot be read is told here, without the address
    except Exception:
        raise WorkspaceError(f"{where}: cannot be read as postgresql://USER:PASSWORD@HOST:PORT/NAME") from None
    return database


def store_url(workspace: Path, *, schema: Schema, file: Path) -> str:
    """The address, for SQLAlchemy, of a store that is a file where the workspace has no database; its schema is made.

    Raises:
        WorkspaceError: the database cannot be reached.
    """
    database = find_database(workspace)
    if database is None:
        return f"sqlite:///{file}"
    database.make(schema=schema)
    return database.url(schema=schema)


def kept_secrets(workspace: Path) -> dict[str, str]:
    """What a process that works on the ledger has in its environment to reach the database."""
    return {name: os.environ[name] for name in SECRETS if name in os.environ and find_database(workspace) is not None}


def patiently(connect: Any) -> Any:
    """What `connect` returns, tried again for a while when the server does not answer; other errors are raised at once."""
    import psycopg

    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return connect()
        except psycopg.OperationalError as error:
            if not _may_come_back(error) or time.monotonic() > until:
                raise
            time.sleep(PAUSE_SECONDS)


def connect_arguments(schema: Schema) -> dict[str, Any]:
    """What SQLAlchemy gives the driver for connections that look into one schema."""
    return {"options": _options(schema), "connect_timeout": CONNECT_SECONDS, "application_name": "knockout", **CUT_OFF}


def _options(schema: Schema) -> str:
    return f"-csearch_path={schema} -cidle_in_transaction_session_timeout={IDLE_SECONDS}s {_FORGETTING}"


def _may_come_back(error: Exception) -> bool:
    """Whether a server is starting, stopping, out of connections or out of reach, and not one that says no."""
    said = str(error)
    refused = (
        "authentication failed",
        "does not exist",
        "no password supplied",
        "no pg_hba.conf entry",
        "permission denied",
    )
    return not any(words in said for words in refused)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
