"""Whether Prefect's database can be used, and what makes way for a new one.

The invariant: the ledger knows which submissions a database of Prefect's holds, so nothing is lost with the file; it is
only moved when nobody uses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from knockout import services
from knockout.errors import ServiceError, WorkspaceError
from knockout.ledger.aside import set_aside
from knockout.ledger.workspace import Workspace
from knockout.services.catalog import PREFECT, PREFECT_ANEW
from knockout.services.database import find_database
from knockout.services.sqlite import damage, parts
from knockout.upkeep.finding import Finding

WHERE = "prefect/prefect.db"


def prefect(workspace: Workspace, *, busy: bool) -> Iterator[Finding]:
    """What is wrong with a workspace's Prefect database. One that machines share looks after itself."""
    database = PREFECT.database(workspace.folder)
    if find_database(workspace.folder) is not None or not database.exists():
        return
    try:
        why = damage(database)
    except WorkspaceError as error:
        yield Finding("Prefect", WHERE, str(error), "see there")
        return
    if why is not None:
        repair = partial(_set_aside, workspace, why=why, busy=busy)
        yield Finding("Prefect", WHERE, f"it is damaged: {why}", PREFECT_ANEW, repair)


def _set_aside(workspace: Workspace, *, why: str, busy: bool) -> None:
    if busy:
        raise ServiceError("a study is being run, and may be telling Prefect of it: repair when it has ended")
    if any(server.name == PREFECT.name and server.running for server in services.status(workspace.folder)):
        raise ServiceError("its server runs: stop it with `knockout down`, then repair")
    for part in parts(PREFECT.database(workspace.folder)):
        set_aside(part, workspace=workspace, why=f"Prefect's database was damaged: {why}")
