"""Leases that end without their owner.

The invariant: a lease that changed hands meanwhile stays.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sql
from sqlalchemy.engine import Connection, Row

from knockout.ledger.process import Owner
from knockout.ledger.tables import runs

HELD = ("leased", "running")
"""The states of a run that somebody holds."""
NOBODY = {"host": None, "pid": None, "process_started": None}
LEASE: list[sql.Column[Any]] = [runs.c[name] for name in ("identity", "host", "pid", "process_started", "heartbeat")]
"""What says who holds a run."""


def end_leases(connection: Connection, *, of: Iterable[Row[Any]]) -> None:
    """Runs whose owner is dead become failed, all in one statement; `of` are rows of LEASE."""
    change = (
        runs.update()
        .where(
            runs.c.identity == sql.bindparam("of"),
            sql.or_(*(runs.c.state == state for state in HELD)),  # IN cannot be executed for many rows
            runs.c.pid == sql.bindparam("by"),
            runs.c.process_started == sql.bindparam("since"),
        )
        .values(state="failed", reason=sql.bindparam("why"), finished=time.time(), **NOBODY)
    )
    connection.execute(change, [_ended(row) for row in of])


def _ended(row: Row[Any]) -> dict[str, Any]:
    owner = Owner(row.host, row.pid, row.process_started)
    return {"of": row.identity, "by": owner.pid, "since": owner.started, "why": f"{owner} died while it held the run"}
