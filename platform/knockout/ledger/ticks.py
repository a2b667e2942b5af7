"""The times at which schedules were due: each is taken once, and never two of the same schedule at once.

The invariant: a row is inserted once for (schedule, due), whoever tries; the second to try does nothing. A sweep that is to
stop is asked by its row, which its own process looks at.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from knockout.ledger.process import Owner
from knockout.ledger.store import Ledger
from knockout.ledger.tables import telling, ticks

MOST_SECONDS = 7 * 86_400.0
"""A sweep on another host, whose process cannot be seen, is taken for dead after a week."""
RUNNING = ("running", "stopping")
"""States of a sweep that has not ended."""


@dataclass(frozen=True)
class Tick:
    """A due time of a schedule that was taken."""

    schedule: str
    due: float
    """In seconds since 1970."""
    state: str
    """running, stopping (it was asked to), done, failed, cancelled."""
    reason: str | None


def take_tick(ledger: Ledger, *, schedule: str, due: float, owner: Owner) -> str | None:
    """Take a due time; why it is not to be had, or None when it is the caller's.

    Raises:
        WorkspaceError: the ledger cannot be written.
    """
    with _turn(ledger, schedule=schedule) as connection:
        rows = list(connection.execute(sql.select(ticks).where(ticks.c.schedule == schedule).order_by(ticks.c.due.desc())))
        if (busy := next((row for row in rows if row.state in RUNNING), None)) is not None:
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


def request_end(ledger: Ledger, *, schedule: str) -> bool:
    """Ask the sweep of a schedule that runs to stop; whether one runs. Raises WorkspaceError."""
    with _turn(ledger, schedule=schedule) as connection:
        running = sql.and_(ticks.c.schedule == schedule, ticks.c.state.in_(RUNNING))
        return connection.execute(sql.update(ticks).where(running).values(state="stopping")).rowcount > 0


def end_requested(ledger: Ledger, *, schedule: str, due: float) -> bool:
    """Whether somebody asked a sweep to stop. Raises WorkspaceError."""
    asked = sql.select(ticks.c.due).where(ticks.c.schedule == schedule, ticks.c.due == due, ticks.c.state == "stopping")
    with telling(ledger.workspace, done="read"), ledger.engine.connect() as connection:
        return connection.execute(asked).first() is not None


def last_ticks(ledger: Ledger) -> dict[str, Tick]:
    """The newest due time that was taken of each schedule; what died has failed. Raises WorkspaceError."""
    newest = sql.select(ticks.c.schedule, sql.func.max(ticks.c.due).label("due")).group_by(ticks.c.schedule).subquery()
    same = sql.and_(ticks.c.schedule == newest.c.schedule, ticks.c.due == newest.c.due)
    with telling(ledger.workspace, done="read"), ledger.engine.connect() as connection:
        running = set(connection.execute(sql.select(ticks.c.schedule).where(ticks.c.state.in_(RUNNING))).scalars())
    for schedule in running:
        with _turn(ledger, schedule=schedule):
            pass
    with telling(ledger.workspace, done="read"), ledger.engine.connect() as connection:
        rows = connection.execute(sql.select(ticks).join(newest, same))
        return {row.schedule: Tick(row.schedule, row.due, row.state, row.reason) for row in rows}


@contextmanager
def _turn(ledger: Ledger, *, schedule: str) -> Iterator[Connection]:
    """A transaction over the rows of a schedule, one at a time among all processes; what died has failed in it."""
    with telling(ledger.workspace, done="written"), ledger.engine.begin() as connection:
        # The first statement writes: only so nobody else writes between what is read here and what is written.
        connection.execute(sql.update(ticks).where(ticks.c.schedule == schedule).values(schedule=schedule))
        _end_dead(connection, schedule=schedule)
        yield connection


def _end_dead(connection: Connection, *, schedule: str) -> None:
    """Sweeps whose process is dead have failed."""
    running = sql.select(ticks).where(ticks.c.schedule == schedule, ticks.c.state.in_(RUNNING))
    for row in list(connection.execute(running)):
        owner = Owner(row.host, row.pid, row.process_started)
        if owner.alive() is False or time.time() - row.started > MOST_SECONDS:
            same = sql.and_(ticks.c.schedule == schedule, ticks.c.due == row.due)
            ended = {"state": "failed", "reason": f"{owner} died", "finished": time.time()}
            connection.execute(sql.update(ticks).where(same).values(**ended))
