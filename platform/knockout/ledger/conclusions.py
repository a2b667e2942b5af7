"""What submissions came to, as their reports said it when they ended.

The invariant: read only. What a study was found to show is never worked out again here, only looked up.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sql

from knockout.ledger.store import Ledger
from knockout.ledger.tables import submissions, telling


@dataclass(frozen=True)
class Conclusion:
    """How one submission of a study ended that has a report."""

    study: str
    arguments: str
    """What the command line changed in the study."""
    finished: float
    """When, in seconds since 1970."""
    facts: dict[str, Any]
    """Everything that its report says."""


def conclusions(ledger: Ledger, *, study: str, but: tuple[str, str] | None = None) -> Iterator[Conclusion]:
    """The submissions of a study that have a report, newest first; each is read only when it is asked for.

    `but` leaves out those that are done and had this plan, as text, with these arguments.

    Raises:
        WorkspaceError: the ledger cannot be read.
    """
    table = submissions.c
    query = sql.select(table.submission).where(table.study == study, table.facts.is_not(None)).order_by(table.created.desc())
    if but is not None:
        plan, arguments = but
        query = query.where(~sql.and_(table.plan == plan, table.arguments == arguments, table.state == "done"))
    with telling(ledger.workspace, done="read"), ledger.engine.connect() as connection:
        for name in list(connection.execute(query).scalars()):
            row = connection.execute(sql.select(submissions).where(table.submission == name)).one()
            yield Conclusion(row.study, row.arguments, row.finished, json.loads(row.facts))
