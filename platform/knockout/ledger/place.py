"""Where a ledger lies, and what becomes of it in a copy of its workspace.

The invariant: a lease is held in one workspace. In a copy nobody holds it, whether or not its owner still works in the
original.
"""

from __future__ import annotations

import time

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from knockout.ledger.dialects import POSTGRES
from knockout.ledger.leases import HELD, NOBODY
from knockout.ledger.tables import place, runs, submissions
from knockout.ledger.workspace import Workspace


def settle(connection: Connection, *, workspace: Workspace) -> str | None:
    """Note where the ledger lies; where it lay before when it was copied or moved since, else None.

    In a copy, whose folder is another one also by its inode, the leases and running submissions of the original end.
    """
    if connection.dialect.name == POSTGRES:
        return None  # it lies in no workspace
    here = workspace.folder.resolve()
    now = {"folder": str(here), "inode": here.stat().st_ino}
    before = connection.execute(place.select()).first()
    if before is not None and before.folder == now["folder"]:
        return None
    connection.execute(place.delete())
    connection.execute(place.insert().values(**now))
    if before is None:
        return None
    if before.inode != now["inode"]:
        _release(connection, original=before.folder)
    return before.folder


def _release(connection: Connection, *, original: str) -> None:
    ended = {"state": "failed", "reason": f"belongs to {original}, of which this workspace is a copy", **NOBODY}
    for table, states in ((runs, HELD), (submissions, ("running",))):
        connection.execute(sql.update(table).where(table.c.state.in_(states)).values(finished=time.time(), **ended))
