"""The names under which Prefect knows what runs on a pool, and where its workers find a workspace."""

from __future__ import annotations

from knockout.ledger.workspace import Workspace
from knockout.services.catalog import POOL
from knockout.services.database import find_database
from knockout.services.objects import find_store


def deployment_name(name: str, *, pool: str) -> str:
    """The name of a deployment on a pool; the default pool's are called as prefect.yaml has them."""
    return name if pool == POOL else f"{name} on {pool}"


def full_name(name: str, *, pool: str) -> str:
    """The same with its flow, as Prefect looks a deployment up."""
    return f"{name}/{deployment_name(name, pool=pool)}"


def workspace_address(workspace: Workspace) -> str | None:
    """Where a worker finds what a workspace holds: the same folder, or its own workspace (None) where machines that share
    no disk have a database and a store in common.
    """
    shared = find_database(workspace.folder) is not None and find_store(workspace.folder) is not None
    return None if shared else str(workspace.folder)
