"""How submissions stand, for whoever asks while or after they run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from knockout.ledger.store import PRUNED, Ledger, LedgerRun, Submission
from knockout.training.progress import read_progress


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


def runs(ledger: Ledger, *, submission: str) -> list[RunState]:
    """Each run that a submission asked for, with how far it is now."""
    asked = ledger.asked(submission)
    known = {run.identity: run for run in ledger.runs({identity for identity, *_ in asked})}
    found: list[RunState] = []
    for identity, variant, size, seed in asked:
        run = known[identity]
        progress = read_progress(ledger.workspace.run(identity)) if run.owner is not None else None
        step = max(run.step, progress[0] if progress is not None else 0)  # another machine tells it with its heartbeat
        where = str(run.owner) if run.owner is not None else None
        name = f"{variant} · {size} · s{seed}"
        found.append(RunState(identity, name, run.state, run.reason, step, run.planned_steps, where))
    return found


def submissions(ledger: Ledger, *, limit: int) -> list[SubmissionState]:
    """The newest submissions."""
    newest = ledger.submissions()[:limit]
    return [_state(ledger, item) for item in newest]


def _state(ledger: Ledger, item: Submission) -> SubmissionState:
    identities = {identity for identity, *_ in ledger.asked(item.submission)}
    finished = sum(_counts(run, of=item) for run in ledger.runs(identities))
    return SubmissionState(item.submission, item.study, item.state, item.reason, item.created, len(identities), finished)


def _counts(run: LedgerRun, *, of: Submission) -> bool:
    """Whether a submission saw the end of a run; one that came to its end saw that of each."""
    late = of.state not in ("running", "done") and run.ended is not None and run.ended > (of.finished or run.ended)
    return (run.finished or run.state == PRUNED) and not late
