"""Submissions whose process died, was taken for dead, or was told to end before their verdicts: another may walk them on.

The invariant: a lost submission is taken over by compare-and-set, so that one process walks it, and the one that was taken
for dead learns of it at its next heartbeat.
"""

from __future__ import annotations

import time

import sqlalchemy as sql

from knockout.ledger.dialects import DatabaseTime
from knockout.ledger.leases import NOBODY
from knockout.ledger.process import Owner, tells_death
from knockout.ledger.rows import Submission, submission_of
from knockout.ledger.stops import BY_COMMAND, request_stop
from knockout.ledger.store import Ledger
from knockout.ledger.tables import submissions, telling

FORGOTTEN = "the ledger that knew of it was lost before it had ended"
LOST_SECONDS = 86_400.0
"""What was lost longer ago is left to who asks for it again."""
TAKE_OVER_SECONDS = 120.0
"""So long who works for a lost submission, or waits for it, counts on its being taken over."""


def lost_submissions(ledger: Ledger) -> list[Submission]:
    """The submissions that were lost of late, oldest first. Raises WorkspaceError."""
    columns = [column for column in submissions.c if column.name not in ("plan", "facts")]
    of_late = submissions.c.finished > time.time() - LOST_SECONDS
    query = sql.select(*columns).where(_is_open(), of_late).order_by(submissions.c.created)
    with telling(ledger.workspace, done="read"), ledger.engine.connect() as connection:
        found = [submission_of(row) for row in connection.execute(query)]
    return [one for one in found if is_lost(one)]


def is_lost(one: Submission) -> bool:
    """Whether a submission ended because its process did."""
    return one.state == "failed" and tells_death(one.reason)


def goes_on(one: Submission | None) -> bool:
    """Whether somebody executes a submission, or is about to take it over."""
    if one is None:
        return False
    return one.state == "running" or (is_lost(one) and time.time() - (one.finished or 0.0) < TAKE_OVER_SECONDS)


def hand_on(ledger: Ledger, *, submission: str, owner: Owner, reason: str) -> None:
    """Leave a submission that this owner executes to whoever takes it over. Raises WorkspaceError."""
    table = submissions.c
    mine = sql.and_(table.host == owner.host, table.pid == owner.pid, table.process_started == owner.started)
    change = submissions.update().where(table.submission == submission, table.state == "running", mine)
    freed = {"state": "failed", "reason": reason, "finished": time.time(), "heartbeat": None, **NOBODY}
    with telling(ledger.workspace, done="written"), ledger.engine.begin() as connection:
        connection.execute(change.values(**freed))


def take_over(ledger: Ledger, *, submission: str, owner: Owner) -> bool:
    """Go on with a lost submission; False when another process was quicker. Raises WorkspaceError."""
    mine = {"host": owner.host, "pid": owner.pid, "process_started": owner.started, "heartbeat": DatabaseTime()}
    change = submissions.update().where(submissions.c.submission == submission, _is_open())
    with telling(ledger.workspace, done="written"), ledger.engine.begin() as connection:
        found = connection.execute(change.values(state="running", reason=None, finished=None, **mine))
    return found.rowcount > 0


def cancel_lost(ledger: Ledger, *, submission: str, owner: Owner) -> bool:
    """Have nobody go on with a lost submission; False when somebody does already. Raises WorkspaceError."""
    if not take_over(ledger, submission=submission, owner=owner):
        return False
    request_stop(ledger, submissions=[submission])
    ledger.conclude(submission, state=BY_COMMAND.state, reason=BY_COMMAND.reason, facts=None)
    return True


def _is_open() -> sql.ColumnElement[bool]:
    table = submissions.c
    return sql.and_(table.state == "failed", table.facts.is_(None), table.host.is_(None))
