"""What `up` records of a service it started: one JSON file for each, replaced whole.

The invariant: a recorded process is told from any later one with the same process id, on any boot of any
host, and a workspace's servers from those of its copies.
"""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from knockout.errors import ServiceError
from knockout.services.catalog import Server, url
from knockout.services.processes import Process, is_alive


@dataclass(frozen=True)
class Service:
    """A server that `up` started."""

    name: str
    url: str
    """Base address, also of the UI. Prefect's API is at `/api` below it."""
    port: int
    since: float
    """When it was started, in seconds since the epoch."""
    log: Path
    guard: Process
    prefect: str | None = None
    """Address of the Prefect server that it was started to work for."""

    @property
    def pid(self) -> int:
        """The process to signal: its guard."""
        return self.guard.pid


def write(service: Service, *, path: Path) -> None:
    """Replace the state file in one step."""
    record = {
        "port": service.port,
        "url": service.url,
        "since": service.since,
        "guard": service.guard.as_dict(),
        "prefect": service.prefect,
        "workspace": str(_workspace(path)),
    }
    _replace(path, text=json.dumps({"name": service.name, **record}, indent=2) + "\n")


def keep_port(service: Service, *, path: Path) -> None:
    """Keep the port for the next start, which `down` does not forget."""
    _replace(path, text=f"{service.port} {_workspace(path)}\n")


def kept_port(path: Path) -> int | None:
    """The port that the workspace's service had last; None if it had none, or in a copy of the workspace."""
    try:
        port, _, workspace = path.read_text().rstrip("\n").partition(" ")
    except FileNotFoundError:
        return None
    return int(port) if workspace == str(_workspace(path)) and port.isdecimal() else None


def _replace(path: Path, *, text: str) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text)
    temporary.replace(path)


def read(workspace: Path, *, server: Server) -> Service | None:
    """The recorded service, running or not; None without a record, or with one of the workspace that this is a copy of.

    ServiceError if the file is damaged, or cannot be read.
    """
    path = server.state(workspace)
    try:
        record = json.loads(path.read_text())
        if record.get("workspace", here := str(_workspace(path))) != here:
            return None
        return Service(
            name=server.name,
            url=url(int(record["port"])),
            port=int(record["port"]),
            since=float(record["since"]),
            log=server.log(workspace),
            guard=Process(**record["guard"]),
            prefect=record.get("prefect"),
        )
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ServiceError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ServiceError(f"{path}: not a service record ({error!r}); stop the server and remove the file") from error


def ends(workspace: Path) -> str:
    """The command that ends the services of a workspace, for messages."""
    return f"`knockout down --workspace {workspace}` ends it"


def left_behind(workspace: Path, *, server: Server) -> Path | None:
    """Where the workspace was when its recorded service was started, if it was moved since and the service still runs.

    None for a copy, whose original has the record too. ServiceError as for `read`.
    """
    path = server.state(workspace)
    if not path.exists() or read(workspace, server=server) is not None:
        return None
    record = json.loads(path.read_text())
    before, guard = Path(record["workspace"]), Process(**record["guard"])
    is_here = guard.host == socket.gethostname() and is_alive(guard)
    return before if is_here and not server.state(before).exists() else None


def _workspace(path: Path) -> Path:
    return path.resolve().parent.parent


def running(service: Service | None, *, path: Path) -> bool:
    """Whether the recorded guard runs. ServiceError if only another host can tell."""
    if service is None:
        return False
    if service.guard.host != socket.gethostname():
        raise ServiceError(
            f"{path}: {service.name} of this workspace was started on {service.guard.host!r}, and this is "
            f"{socket.gethostname()!r}; run `knockout down` there, or remove the file if that machine is gone"
        )
    return is_alive(service.guard)
