"""The Prefect server that a command talks to: the workspace's own, or one that the environment names."""

from __future__ import annotations

import os
import sys
import time

from knockout import services
from knockout.errors import ServiceError
from knockout.ledger.workspace import Workspace

ADDRESS = "PREFECT_API_URL"
PATIENCE_SECONDS = 60.0
"""So long a server that runs may take to answer."""
POLL_SECONDS = 0.5


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
    return _named()


def own_prefect(workspace: Workspace) -> str | None:
    """The address of the server that `knockout up` started, None where it does not run.

    One that is busy, or just starting, is waited for: it is there, whatever it is slow at.

    Raises:
        ServiceError: it runs, and does not answer.
    """
    services.apply_quiet_environment(workspace.folder)
    until, told = time.monotonic() + PATIENCE_SECONDS, False
    while (found := _prefect(workspace)).running and not found.healthy:
        if time.monotonic() > until:
            raise ServiceError(
                f"the Prefect server of the workspace {workspace.folder} runs, but has not answered for "
                f"{PATIENCE_SECONDS:g} s; `knockout down` and `up` start it anew"
            )
        if not told:
            print("waiting for the Prefect server, which is busy …", file=sys.stderr, flush=True)
            told = True
        time.sleep(POLL_SECONDS)
    return found.url if found.running else None


def answering_prefect(workspace: Workspace) -> str | None:
    """The address of the server that `knockout up` started, or else of $PREFECT_API_URL's, without waiting for either."""
    services.apply_quiet_environment(workspace.folder)
    found = _prefect(workspace)
    return found.url if found.healthy else _named()


def _named() -> str | None:
    named = os.environ.get(ADDRESS)
    return named.rstrip("/").removesuffix("/api") if named else None


def _prefect(workspace: Workspace) -> services.ServiceStatus:
    return next(server for server in services.status(workspace.folder) if server.name == "prefect")
