"""The Prefect server that a command talks to: the workspace's own, or one that the environment names."""

from __future__ import annotations

import os

from knockout import services
from knockout.errors import ServiceError
from knockout.ledger.workspace import Workspace

ADDRESS = "PREFECT_API_URL"


def prefect_address(workspace: Workspace) -> str:
    """The address of the server that `knockout up` started for this workspace, or else that of $PREFECT_API_URL.

    Raises:
        ServiceError: there is neither.
    """
    if (known := known_prefect(workspace)) is not None:
        return known
    raise ServiceError(
        f"no Prefect server runs for the workspace {workspace.folder}: `knockout up` starts one with a worker, "
        f"or set {ADDRESS} to the address of yours"
    )


def known_prefect(workspace: Workspace) -> str | None:
    """The same, or None where there is neither."""
    if (own := own_prefect(workspace)) is not None:
        return own
    named = os.environ.get(ADDRESS)
    return named.rstrip("/").removesuffix("/api") if named else None


def own_prefect(workspace: Workspace) -> str | None:
    """The address of the server that `knockout up` started, if it answers."""
    services.apply_quiet_environment(workspace.folder)
    found = (server for server in services.status(workspace.folder) if server.name == "prefect" and server.healthy)
    return next((server.url for server in found), None)
