"""What the ledger says of one run and of one submission, read from its rows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy.engine import Row

from knockout.ledger.leases import owner_of
from knockout.ledger.process import Owner

FINISHED = ("done", "diverged")
"""A result: the run is never executed again."""


@dataclass(frozen=True)
class LedgerRun:
    """What the ledger says of one run."""

    identity: str
    meaning: dict[str, Any]
    state: str
    reason: str | None
    attempts: int
    step: int
    planned_steps: int
    owner: Owner | None
    seconds: float
    metrics: dict[str, float]
    ended: float | None = None
    """When its result was sealed, in seconds since 1970."""

    @property
    def finished(self) -> bool:
        """Whether there is a result."""
        return self.state in FINISHED


@dataclass(frozen=True)
class Submission:
    """One execution of a study."""

    submission: str
    study: str
    state: str
    reason: str | None
    created: float
    finished: float | None
    owner: Owner | None


def run_of(row: Row[Any]) -> LedgerRun:
    """The run that a row describes."""
    return LedgerRun(
        row.identity,
        json.loads(row.meaning),
        row.state,
        row.reason,
        row.attempts,
        row.step,
        row.planned_steps,
        owner_of(row),
        row.seconds,
        json.loads(row.metrics),
        row.finished,
    )


def submission_of(row: Row[Any]) -> Submission:
    """The submission that a row describes."""
    return Submission(row.submission, row.study, row.state, row.reason, row.created, row.finished, owner_of(row))
