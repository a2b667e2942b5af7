"""How submissions stand, for whoever asks while or after they run."""

from __future__ import annotations

from dataclasses import dataclass

from knockout.ledger.store import PRUNED, Ledger, Submission


@dataclass(frozen=True)
class SubmissionState:
    """One submission and how many of its runs have a result, or were pruned."""

    submission: str
    study: str
    state: str
    reason: str | None
    created: float
    runs: int
    finished: int


def submissions(ledger: Ledger, *, limit: int) -> list[SubmissionState]:
    """The newest submissions."""
    newest = ledger.submissions()[:limit]
    return [_state(ledger, item) for item in newest]


def _state(ledger: Ledger, item: Submission) -> SubmissionState:
    identities = {identity for identity, *_ in ledger.asked(item.submission)}
    finished = sum(run.finished or run.state == PRUNED for run in ledger.runs(identities))
    return SubmissionState(item.submission, item.study, item.state, item.reason, item.created, len(identities), finished)
