"""The two local servers as data: command line, environment, address and files of each.

The invariant: both listen on the loopback address only, and keep everything inside the workspace.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from knockout.errors import ServiceError
from knockout.services.environment import quiet_environment, settings
from knockout.services.relocation import artifact_root, relocate

HOST = "127.0.0.1"

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
    """Workspace -> its database, if copied or moved, made its own."""

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
    database = PREFECT.database(workspace)
    environment = {
        **server_environment(workspace),
        "PREFECT_API_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{database}",
        "PREFECT_SERVER_DATABASE_TIMEOUT": "60",  # seconds that a writer waits for another, default 10
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


def mlflow_command(workspace: Path, port: int) -> list[str]:
    options = {
        "--host": HOST,
        "--port": str(port),
        "--workers": "1",  # one process serves one person's browser; each more costs 275 MB
        "--backend-store-uri": f"sqlite:///{MLFLOW.database(workspace)}",
        "--default-artifact-root": artifact_root(workspace),
        "--uvicorn-opts": "--log-level warning",
    }
    words = [word for option in options.items() for word in option]
    return [sys.executable, "-m", "mlflow", "server", *words, "--no-serve-artifacts"]


def mlflow_environment(workspace: Path, port: int, borrowed: bool) -> dict[str, str]:
    return server_environment(workspace)


PREFECT = Server(
    name="prefect",
    default_port=4200,
    health_path="/api/health",
    command=prefect_command,
    environment=prefect_environment,
    settle=lambda _: None,  # Prefect's database holds no path
)
MLFLOW = Server(
    name="mlflow",
    default_port=5000,
    health_path="/health",
    command=mlflow_command,
    environment=mlflow_environment,
    settle=relocate,
)
SERVERS: Mapping[str, Server] = {server.name: server for server in (PREFECT, MLFLOW)}


def find(name: str) -> Server:
    """The server of this name; ServiceError if there is none."""
    if name not in SERVERS:
        raise ServiceError(f"{name!r} is not a service ({', '.join(SERVERS)})")
    return SERVERS[name]
