"""How submissions stand, for whoever asks while or after they run.

The invariant: what goes on by itself is never told as failed. The ledger calls a submission failed from the moment that its
process is lost; people see that it waits for the next worker of its pool.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from knockout.ledger.lost import lost_submissions
from knockout.ledger.process import tells_death, tells_leaving
from knockout.ledger.store import PRUNED, Ledger, LedgerRun, Submission
from knockout.submission.requests import pool_of_lost
from knockout.training.progress import read_progress

WAITING = "waiting"
"""The state of what its process left, or lost with its life, and the next worker of the pool goes on with."""


@dataclass(frozen=True)
class SubmissionState:
    """One submission and how many of its runs have a result, or were pruned; when it was cut off, how many had by then."""

    submission: str
    study: str
    state: str
    reason: str | None
    created: float
    runs: int
    finished: int


@dataclass(frozen=True)
class RunState:
    """One run that a submission asked for."""

    identity: str
    name: str
    """How people see it: variant, size and seed."""
    state: str
    reason: str | None
    step: int
    planned_steps: int
    where: str | None
    """Who works on it."""


class QueueState(Protocol):
    """What a queue of a pool holds."""

    @property
    def pool(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def workers(self) -> int: ...
    @property
    def running(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def next(self) -> float | None: ...


def lost_to_pools(ledger: Ledger) -> dict[str, str]:
    """The pools whose next worker goes on with a submission that was lost, by the submission."""
    pools = {one.submission: pool_of_lost(one, ledger=ledger) for one in lost_submissions(ledger)}
    return {name: pool for name, pool in pools.items() if pool is not None}


def runs(ledger: Ledger, *, of: SubmissionState) -> list[RunState]:
    """Each run that a submission asked for, with how far it is now."""
    asked = ledger.asked(of.submission)
    known = {run.identity: run for run in ledger.runs({identity for identity, *_ in asked})}
    found: list[RunState] = []
    for identity, variant, size, seed in asked:
        run = known[identity]
        progress = read_progress(ledger.workspace.run(identity)) if run.owner is not None else None
        step = max(run.step, progress[0] if progress is not None else 0)  # another machine tells it with its heartbeat
        where = str(run.owner) if run.owner is not None else None
        name = f"{variant} · {size} · s{seed}"
        state = WAITING if _goes_on(run, of=of) else run.state
        found.append(RunState(identity, name, state, run.reason, step, run.planned_steps, where))
    return found


def submissions(
    ledger: Ledger, *, limit: int | None = None, of: str | None = None, lost: Mapping[str, str]
) -> list[SubmissionState]:
    """The newest submissions, or those of a study or of that name; `lost` as `lost_to_pools` has it."""
    known = [item for item in ledger.submissions() if of in (None, item.study, item.submission)]
    known.sort(key=lambda item: (item.created, item.submission), reverse=True)
    return [_state(ledger, item, pool=lost.get(item.submission)) for item in known[:limit]]


def _state(ledger: Ledger, item: Submission, *, pool: str | None) -> SubmissionState:
    identities = {identity for identity, *_ in ledger.asked(item.submission)}
    finished = sum(_counts(run, of=item) for run in ledger.runs(identities))
    state, reason = item.state, item.reason
    if pool is not None:
        state, reason = WAITING, f"{reason}; goes on with the next worker of pool '{pool}'"
    return SubmissionState(item.submission, item.study, state, reason, item.created, len(identities), finished)


def _goes_on(run: LedgerRun, *, of: SubmissionState) -> bool:
    """Whether a run that its process left, or lost with its life, is to be trained on in a submission."""
    if run.state != "failed":
        return False
    return tells_death(run.reason) if of.state == WAITING else of.state == "running" and tells_leaving(run.reason)


def _counts(run: LedgerRun, *, of: Submission) -> bool:
    """Whether a submission saw the end of a run; one that came to its end saw that of each."""
    late = of.state not in ("running", "done") and run.ended is not None and run.ended > (of.finished or run.ended)
    return (run.finished or run.state == PRUNED) and not late
