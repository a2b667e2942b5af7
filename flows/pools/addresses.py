"""The names under which Prefect knows what runs on a pool, and where its workers find a workspace."""

from __future__ import annotations

import os
from pathlib import Path

from prefect.context import FlowRunContext

from knockout.errors import InputError
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


def enter(project: str | None) -> None:
    """Look names up as in the folder that the work was asked for from; None: where this process is.

    Raises:
        InputError: it is not on this machine.
    """
    if project is None:
        return
    if not Path(project).is_dir():
        raise InputError(f"the project's folder {project} is not on this machine: workers and users must share it")
    os.chdir(project)


def pool_of_this() -> str:
    """The pool whose worker runs this flow run; the default one outside of any."""
    context = FlowRunContext.get()
    run = context.flow_run if context is not None else None
    return (run.work_pool_name if run is not None else None) or POOL
