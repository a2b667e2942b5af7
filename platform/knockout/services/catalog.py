"""The local services as data: command line, environment, address and files of each.

The invariant: each listens on the loopback address only, and keeps everything inside the workspace.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from knockout import project
from knockout.errors import ServiceError, WorkspaceError
from knockout.services.database import find_database, kept_secrets, store_url
from knockout.services.environment import quiet_environment, settings
from knockout.services.objects import kept_credentials
from knockout.services.relocation import artifact_root, relocate
from knockout.services.sqlite import damage

HOST = "127.0.0.1"
POOL = "knockout"
"""The work pool of a workspace that names no other."""
STUDIES = "studies"
"""The queue of a pool for flow runs that only wait for others."""
TRAINING = "training"
"""The queue of a pool for flow runs that train."""
PAGES = {"prefect": "/runs", "mlflow": "/#/experiments?workflowType=machine_learning"}
"""Where a server's UI shows studies. Without the type MLflow opens for agents: their traces, prompts and gateways."""
PREFECT_ANEW = "moves it to lost+found/, and the next command that reaches Prefect tells it the submissions anew"
"""What repairing does with a damaged database of Prefect's."""
QUERY_SECONDS = 2
"""A worker asks its pool so often for work."""
WORKER_GRACE_SECONDS = 40.0
"""A run has 20 s for its step before it is killed, and then its flow run tells how it ended."""

IDLE_PREFECT_SERVICES = (
    "CANCELLATION_CLEANUP",
    "FOREMAN",
    "LATE_RUNS",
    "PAUSE_EXPIRATIONS",
    "SCHEDULER",
    "TRIGGERS",
)
"""Loops that a borrowed Prefect server goes without. Those that record events and task runs stay on."""


@dataclass(frozen=True)
class Server:
    """One kind of local server."""

    name: str
    """As users write it, and the workspace folder of its database."""
    default_port: int
    health_path: str
    """Answers 200 once the server is ready."""
    command: Callable[[Path, int], list[str]]
    """Workspace, port -> command line."""
    environment: Callable[[Path, int, bool], dict[str, str]]
    """Workspace, port, borrowed -> the whole environment."""
    settle: Callable[[Path], object]
    """Workspace -> its database, made if there is none; if copied or moved, made its own."""
    grace_seconds: float = 5.0
    """It is killed when it takes longer to end."""
    prefect: str | None = None
    """Address of the Prefect server that it works for; None for a server that stands alone."""

    def folder(self, workspace: Path) -> Path:
        """Where its database and other files are."""
        return workspace.resolve() / self.name

    def database(self, workspace: Path) -> Path:
        """Its SQLite file."""
        return self.folder(workspace) / f"{self.name}.db"

    def log(self, workspace: Path, *, suffix: str = "") -> Path:
        """Where its output goes; started anew with every start."""
        return workspace.resolve() / "services" / f"{self.name}{suffix}.log"

    def state(self, workspace: Path) -> Path:
        """Where `up` records it."""
        return workspace.resolve() / "services" / f"{self.name}.json"

    def last_port(self, workspace: Path) -> Path:
        """Where its port is kept for the next `up`."""
        return workspace.resolve() / "services" / f"{self.name}.port"


def url(port: int) -> str:
    """The address of a server, which is also its UI's. Prefect's API is at `/api` below it."""
    return f"http://{HOST}:{port}"


def server_environment(workspace: Path) -> dict[str, str]:
    """The quiet environment without the caller's Prefect settings; no modules from the current folder."""
    base = {name: value for name, value in quiet_environment(workspace).items() if not name.startswith("PREFECT_")}
    return {**base, **settings(workspace), "PYTHONSAFEPATH": "1"}


def prefect_command(workspace: Path, port: int) -> list[str]:
    return [sys.executable, "-m", "prefect", "server", "start", "--host", HOST, "--port", str(port)]


def prefect_environment(workspace: Path, port: int, borrowed: bool) -> dict[str, str]:
    environment = {
        **server_environment(workspace),
        **prefect_database(workspace),
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": f"http://{HOST}:{port},http://localhost:{port}",
        "PREFECT_UI_API_URL": f"{url(port)}/api",
    }
    if borrowed:
        environment |= {f"PREFECT_SERVER_SERVICES_{name}_ENABLED": "false" for name in IDLE_PREFECT_SERVICES}
        # Saves 0.5 s of the first start; a client registers the block types that it uses.
        environment |= {
            "PREFECT_SERVER_REGISTER_BLOCKS_ON_START": "false",
            "PREFECT_SERVER_UI_ENABLED": "false",
        }
    return environment


def prefect_database(workspace: Path) -> dict[str, str]:
    """Where Prefect's server keeps its tables; the address of a database is in the environment and no command line."""
    database = find_database(workspace)
    if database is None:
        return {
            "PREFECT_API_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{PREFECT.database(workspace)}",
            "PREFECT_SERVER_DATABASE_TIMEOUT": "60",  # seconds that a writer waits for another, default 10
        }
    trigrams = (
        database.schema_of("pg_trgm") or "prefect"
    )  # an administrator may have made it elsewhere, and it is there once
    return {
        "PREFECT_API_DATABASE_CONNECTION_URL": database.url(driver="asyncpg"),
        "PREFECT_SERVER_DATABASE_SQLALCHEMY_CONNECT_ARGS_SEARCH_PATH": ",".join(dict.fromkeys(["prefect", trigrams])),
    }


def mlflow_command(workspace: Path, port: int) -> list[str]:
    options = {
        "--host": HOST,
        "--port": str(port),
        "--workers": "1",  # one process serves one person's browser; each more costs 275 MB
        "--default-artifact-root": artifact_root(workspace),
        "--uvicorn-opts": "--log-level warning",
    }
    words = [word for option in options.items() for word in option]
    return [sys.executable, "-m", "mlflow", "server", *words, "--no-serve-artifacts"]


def mlflow_environment(workspace: Path, port: int, borrowed: bool) -> dict[str, str]:
    address = store_url(workspace, schema="mlflow", file=MLFLOW.database(workspace))
    return {**server_environment(workspace), "MLFLOW_BACKEND_STORE_URI": address}


def settle_mlflow(workspace: Path) -> None:
    if find_database(workspace) is not None:
        return
    database = MLFLOW.database(workspace)
    if database.exists():
        relocate(workspace)
    in_wal_mode(database)


def settle_prefect(workspace: Path) -> None:
    """Its database; it holds no path. Raises ServiceError where it is damaged, or cannot be looked at."""
    if (database := find_database(workspace)) is not None:
        database.make(schema="prefect")
        return
    file = PREFECT.database(workspace)
    in_wal_mode(file)
    try:
        why = damage(file)
    except WorkspaceError as error:
        raise ServiceError(f"prefect cannot start: {error}") from None
    if why is not None:
        raise ServiceError(f"prefect cannot start: {file} is damaged ({why}); `knockout doctor --repair` {PREFECT_ANEW}")


def in_wal_mode(database: Path) -> None:
    """A new database in WAL mode, in which readers do not wait for writers; one that exists stays as it is."""
    if not database.exists():
        with closing(sqlite3.connect(database, timeout=60)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")


def worker(*, pool: str, slots: int | None, prefect: str) -> Server:
    """The worker of a pool: it takes the flow runs of the Prefect server at this address, `slots` trainings at a time.

    The port is that of its health check.
    """

    def command(workspace: Path, port: int) -> list[str]:
        script = project.root() / "flows" / "serving.py"
        limit = ["--slots", str(slots)] if slots is not None else []
        return [sys.executable, str(script), "--pool", pool, *limit]

    def environment(workspace: Path, port: int, borrowed: bool) -> dict[str, str]:
        return {
            **server_environment(workspace),
            "KNOCKOUT_HOME": str(workspace.resolve()),  # its own, where machines share no disk
            **kept_secrets(workspace),
            **kept_credentials(workspace),
            "PREFECT_API_URL": f"{prefect}/api",
            "PREFECT_WORKER_QUERY_SECONDS": str(QUERY_SECONDS),
            "PREFECT_WORKER_PREFETCH_SECONDS": str(QUERY_SECONDS),
            "PREFECT_WORKER_WEBSERVER_HOST": HOST,
            "PREFECT_WORKER_WEBSERVER_PORT": str(port),
        }

    return Server(
        name="worker",
        default_port=0,
        health_path="/health",
        command=command,
        environment=environment,
        settle=lambda _: None,
        grace_seconds=WORKER_GRACE_SECONDS,
        prefect=prefect,
    )


PREFECT = Server(
    name="prefect",
    default_port=4200,
    health_path="/api/health",
    command=prefect_command,
    environment=prefect_environment,
    settle=settle_prefect,
)
MLFLOW = Server(
    name="mlflow",
    default_port=5000,
    health_path="/health",
    command=mlflow_command,
    environment=mlflow_environment,
    settle=settle_mlflow,
)
SERVERS: Mapping[str, Server] = {server.name: server for server in (PREFECT, MLFLOW)}
"""Those that stand alone; a worker needs Prefect's."""
WORKER = worker(pool=POOL, slots=None, prefect=url(PREFECT.default_port))


def find(name: str) -> Server:
    """The server of this name; ServiceError if there is none."""
    if name not in SERVERS:
        raise ServiceError(f"{name!r} is not a service ({', '.join(SERVERS)})")
    return SERVERS[name]
