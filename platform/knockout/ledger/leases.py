"""Leases that end without their owner.

The invariant: a holder that is dead, or that has shown no sign of life for so long that it must be taken for dead, loses
what it holds; a lease that changed hands or was renewed meanwhile stays. What was asked to stop, and died before it could
say so, was stopped. How long a sign of life is past is told by the
database's clock, which is one for all hosts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sql
from sqlalchemy.engine import Connection, Row

from knockout.errors import InputError
from knockout.ledger.dialects import DatabaseTime
from knockout.ledger.process import SILENT, Owner
from knockout.ledger.tables import runs, stops, submissions

HELD = ("leased", "running")
"""The states of a run that somebody holds."""
HEARTBEAT_SECONDS = 5.0
"""Who holds a run, or executes a submission, says so often that it still works."""
LEASE_SECONDS = 60.0
"""A lease is lost when its heartbeat is older than this: also that of a process which is there but does not move."""
VARIABLE = "KNOCKOUT_LEASE_SECONDS"
"""Another length of leases, the same on every machine: a network that is often away wants a longer one."""
HELD_TO_THE_END = "while it held the run"
"""Ends the reason of a run whose owner is dead."""
NOBODY = {"host": None, "pid": None, "process_started": None}
_HOLDER = ("host", "pid", "process_started", "heartbeat")
_NOW = DatabaseTime().label("now")
LEASE: list[sql.ColumnElement[Any]] = [*(runs.c[name] for name in ("identity", *_HOLDER)), _NOW]
"""What says who holds a run."""
EXECUTION: list[sql.ColumnElement[Any]] = [*(submissions.c[name] for name in ("submission", "created", *_HOLDER)), _NOW]
"""What says who executes a submission."""


def lease_seconds() -> float:
    """How long a lease lasts without a sign of life. Raises InputError."""
    said = os.environ.get(VARIABLE)
    if said is None:
        return LEASE_SECONDS
    try:
        seconds = float(said)
    except ValueError:
        seconds = 0.0
    if not 2 * HEARTBEAT_SECONDS <= seconds < float("inf"):
        raise InputError(f"${VARIABLE}: '{said}' is not a length in seconds of at least {2 * HEARTBEAT_SECONDS:g}")
    return seconds


def owner_of(row: Row[Any]) -> Owner | None:
    """Who holds what a row describes."""
    return Owner(row.host, row.pid, row.process_started) if row.host is not None else None


def death_of_holder(row: Row[Any]) -> str | None:
    """Why the holder of a run, a row of LEASE, is taken for dead; None while it lives."""
    owner = owner_of(row)
    why = _death(owner, heartbeat=row.heartbeat, now=row.now) if owner is not None else "nobody knows who had it"
    return f"{why} {HELD_TO_THE_END}" if why is not None else None


def death_of_executor(row: Row[Any]) -> str | None:
    """Why the process of a submission, a row of EXECUTION, is taken for dead; None while it lives, or is not known.

    What an older knockout began has no heartbeat: elsewhere it counts from its beginning, here its process is seen.
    """
    owner = owner_of(row)
    if owner is None:
        return None
    here = owner.alive() is not None
    beaten = row.now if row.heartbeat is None and here else row.heartbeat or row.created
    return _death(owner, heartbeat=beaten, now=row.now)


def asked_to_stop(connection: Connection, *, of: Sequence[tuple[Row[Any], str]]) -> dict[Owner, str]:
    """Of the processes of submissions, in rows of EXECUTION, those that were to stop their work, each with the reason."""
    if not of:
        return {}
    named = stops.c.submission.in_([row.submission for row, _ in of])
    cancelled = sql.select(stops.c.submission, stops.c.reason).where(named, stops.c.state == "cancelled")
    reasons = {row.submission: row.reason for row in connection.execute(cancelled)}
    return {owner: reasons[row.submission] for row, _ in of if row.submission in reasons and (owner := owner_of(row))}


def end_leases(connection: Connection, *, of: Iterable[tuple[Row[Any], str]], stopped: Mapping[Owner, str]) -> None:
    """Runs whose holder is dead become failed, or cancelled where it was to stop, all in one statement.

    `of` are rows of LEASE, each with the reason; `stopped` is as `asked_to_stop` has it.
    """
    change = (
        runs.update()
        .where(
            runs.c.identity == sql.bindparam("of"),
            sql.or_(*(runs.c.state == state for state in HELD)),  # IN cannot be executed for many rows
            runs.c.pid.is_not_distinct_from(sql.bindparam("by")),
            runs.c.process_started.is_not_distinct_from(sql.bindparam("since")),
            runs.c.heartbeat.is_not_distinct_from(sql.bindparam("beaten")),
        )
        .values(state=sql.bindparam("end"), reason=sql.bindparam("why"), finished=time.time(), heartbeat=None, **NOBODY)
    )
    connection.execute(
        change,
        [
            {"of": row.identity, "by": row.pid, "since": row.process_started, "beaten": row.heartbeat}
            | _end_of(why, asked=_asked(row, stopped=stopped))
            for row, why in of
        ],
    )


def end_executions(connection: Connection, *, of: Iterable[tuple[Row[Any], str]], stopped: Mapping[Owner, str]) -> None:
    """Submissions whose process is dead become failed, or cancelled where it was to stop: who it was stays known then.

    `of` are rows of EXECUTION, each with the reason; `stopped` is as `asked_to_stop` has it.
    """
    table = submissions.c
    for row, why in of:
        same = sql.and_(table.submission == row.submission, table.heartbeat.is_not_distinct_from(row.heartbeat))
        asked = _asked(row, stopped=stopped)
        end = {"state": "failed", "reason": why, **NOBODY} if asked is None else {"state": "cancelled", "reason": asked}
        change = submissions.update().where(same, table.state == "running")
        connection.execute(change.values(finished=time.time(), heartbeat=None, **end))


def _end_of(why: str, *, asked: str | None) -> dict[str, str]:
    return {"end": "failed", "why": why} if asked is None else {"end": "cancelled", "why": f"{asked}; {why}"}


def _asked(row: Row[Any], *, stopped: Mapping[Owner, str]) -> str | None:
    """Why the process that a row names was to stop, if it was."""
    owner = owner_of(row)
    return stopped.get(owner) if owner is not None else None


def _death(owner: Owner, *, heartbeat: float | None, now: float) -> str | None:
    if owner.alive() is False:
        return f"{owner} died"
    seconds = lease_seconds()
    silent = now - (heartbeat or 0.0) > seconds
    return f"{owner} {SILENT} for {seconds:g} s" if silent else None
