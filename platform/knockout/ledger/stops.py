"""Requests that a submission shall stop, from any terminal on the same workspace.

The invariant: a request is a row in the ledger's database, which the submission's own process looks for; nobody signals a
process that may be another host's.
"""

from __future__ import annotations

import time
from collections.abc import Collection

import sqlalchemy as sql

from knockout.ledger.dialects import insert
from knockout.ledger.store import Ledger
from knockout.ledger.tables import stops, telling


def request_stop(ledger: Ledger, *, submissions: Collection[str]) -> None:
    """Ask submissions to stop; to ask again changes nothing.

    Raises:
        WorkspaceError: the ledger cannot be written.
    """
    rows = [{"submission": name, "requested": time.time()} for name in submissions]
    with telling(ledger.workspace, done="written"), ledger.engine.begin() as connection:
        for row in rows:
            connection.execute(insert(stops, bind=connection).values(**row).on_conflict_do_nothing())


def stop_requested(ledger: Ledger, *, submission: str) -> bool:
    """Whether somebody asked a submission to stop.

    Raises:
        WorkspaceError: the ledger cannot be read.
    """
    query = sql.select(stops.c.submission).where(stops.c.submission == submission)
    with telling(ledger.workspace, done="read"), ledger.engine.connect() as connection:
        return connection.execute(query).first() is not None
