"""Requests that a submission shall stop, from any terminal on the same workspace, or from the process that walks it.

The invariant: a request is a row in the ledger's database, which every process that works for the submission looks for;
nobody signals a process that may be another host's. The first request says how the work ends.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Literal

import sqlalchemy as sql

from knockout.ledger.dialects import insert
from knockout.ledger.store import Ledger
from knockout.ledger.tables import stops, telling


@dataclass(frozen=True)
class Wanted:
    """What unfinished work is to come to."""

    state: Literal["cancelled", "timed-out", "failed"] = "cancelled"
    reason: str = "stopped by `knockout stop`"


BY_COMMAND = Wanted()


def request_stop(ledger: Ledger, *, submissions: Collection[str], wanted: Wanted = BY_COMMAND) -> None:
    """Ask submissions to stop; to ask again changes nothing.

    Raises:
        WorkspaceError: the ledger cannot be written.
    """
    rows = [{"submission": name, "requested": time.time(), **asdict(wanted)} for name in submissions]
    with telling(ledger.workspace, done="written"), ledger.engine.begin() as connection:
        for row in rows:
            connection.execute(insert(stops, bind=connection).values(**row).on_conflict_do_nothing())


def wanted_stop(ledger: Ledger, *, submission: str) -> Wanted | None:
    """What a submission that was asked to stop is to come to; None where nobody asked. Raises WorkspaceError."""
    query = sql.select(stops).where(stops.c.submission == submission)
    with telling(ledger.workspace, done="read"), ledger.engine.connect() as connection:
        found = connection.execute(query).first()
    if found is None:
        return None
    return Wanted(found.state, found.reason) if found.state is not None else BY_COMMAND  # an older knockout gave none


def stop_requested(ledger: Ledger, *, submission: str) -> bool:
    """Whether somebody asked a submission to stop. Raises WorkspaceError."""
    return wanted_stop(ledger, submission=submission) is not None


def stopped_among(ledger: Ledger, *, submissions: Collection[str]) -> frozenset[str]:
    """Those of some submissions that somebody asked to stop. Raises WorkspaceError."""
    query = sql.select(stops.c.submission).where(stops.c.submission.in_(list(submissions)))
    with telling(ledger.workspace, done="read"), ledger.engine.connect() as connection:
        return frozenset(connection.execute(query).scalars())
