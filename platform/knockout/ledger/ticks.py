"""The times at which schedules were due: each is taken once, and never two of the same schedule at once.

The invariant: a row is inserted once for (schedule, due), whoever tries; the second to try does nothing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from knockout.ledger.process import Owner
from knockout.ledger.store import Ledger
from knockout.ledger.tables import telling, ticks

MOST_SECONDS = 7 * 86_400.0
"""A sweep on another host, whose process cannot be seen, is taken for dead after a week."""


@dataclass(frozen=True)
class Tick:
    """A due time of a schedule that was taken."""

    schedule: str
    due: float
    """In seconds since 1970."""
    state: str
    """running, done, failed."""
    reason: str | None


def take_tick(ledger: Ledger, *, schedule: str, due: float, owner: Owner) -> str | None:
    """Take a due time; why it is not to be had, or None when it is the caller's.

    Raises:
        WorkspaceError: the ledger cannot be written.
    """
    with telling(ledger.workspace, done="written"), ledger.engine.begin() as connection:
        # The first statement writes, so that the whole is one turn among all processes.
        connection.execute(sql.update(ticks).where(ticks.c.schedule == schedule).values(schedule=schedule))
        _end_dead(connection, schedule=schedule)
        rows = list(connection.execute(sql.select(ticks).where(ticks.c.schedule == schedule).order_by(ticks.c.due.desc())))
        if (busy := next((row for row in rows if row.state == "running"), None)) is not None:
            return f"process {busy.pid} on {busy.host} still works on the sweep before"
        if rows and rows[0].due >= due:
            return "this due time was taken before"
        values = {"host": owner.host, "pid": owner.pid, "process_started": owner.started}
        row = {"schedule": schedule, "due": due, "state": "running", "started": time.time(), **values}
        connection.execute(sql.insert(ticks).values(**row))
    return None


def end_tick(ledger: Ledger, *, schedule: str, due: float, state: str, reason: str | None) -> None:
    """Record how a sweep ended. Raises WorkspaceError."""
    change = sql.update(ticks).where(ticks.c.schedule == schedule, ticks.c.due == due)
    with telling(ledger.workspace, done="written"), ledger.engine.begin() as connection:
        connection.execute(change.values(state=state, reason=reason, finished=time.time()))


def last_ticks(ledger: Ledger) -> dict[str, Tick]:
    """The newest due time that was taken of each schedule. Raises WorkspaceError."""
    newest = sql.select(ticks.c.schedule, sql.func.max(ticks.c.due).label("due")).group_by(ticks.c.schedule).subquery()
    same = sql.and_(ticks.c.schedule == newest.c.schedule, ticks.c.due == newest.c.due)
    with telling(ledger.workspace, done="read"), ledger.engine.connect() as connection:
        rows = connection.execute(sql.select(ticks).join(newest, same))
        return {row.schedule: Tick(row.schedule, row.due, row.state, row.reason) for row in rows}


def _end_dead(connection: Connection, *, schedule: str) -> None:
    """Sweeps whose process is dead have failed."""
    running = sql.select(ticks).where(ticks.c.schedule == schedule, ticks.c.state == "running")
    for row in list(connection.execute(running)):
        owner = Owner(row.host, row.pid, row.process_started)
        if owner.alive() is False or time.time() - row.started > MOST_SECONDS:
            same = sql.and_(ticks.c.schedule == schedule, ticks.c.due == row.due)
            ended = {"state": "failed", "reason": f"{owner} died", "finished": time.time()}
            connection.execute(sql.update(ticks).where(same).values(**ended))
