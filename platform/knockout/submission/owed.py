"""What MLflow should show of ended submissions and does not, and telling it: what a dead process, a store that was out of
reach or a later command left to be said.

The invariant: the ledger and the run files decide. A submission in work is left to itself, and what MLflow shows as it is
costs one look.
"""

from __future__ import annotations

import logging
import math
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from knockout.errors import ServiceError, WorkspaceError
from knockout.ledger.inventory import Ask, Entry, Submitted, entries, every_ask, note_shown, owed_submissions
from knockout.ledger.store import PRUNED, Ledger, LedgerRun
from knockout.services.locks import locked
from knockout.services.waiting import Say
from knockout.submission.retelling import Told, tell_again
from knockout.tracking import BackgroundMirror, Mirror, inspection, naming
from knockout.tracking.inspection import Shown
from knockout.training.untold import reconcile

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Owed:
    """What the mirror should show: the submissions that were mirrored, and of each what it asked for."""

    submissions: tuple[Submitted, ...]
    asks: Mapping[str, tuple[Ask, ...]]


def settle(ledger: Ledger, *, say: Say) -> str | None:
    """What a command does first: set right what dead processes left, in the ledger, and in MLflow where there is a store.

    MLflow is imported only when it lacks something. Returns a warning that names what could not be told, or None; `say` is
    told what is waited for, if it takes long.
    """
    reconcile(ledger)
    folder = ledger.workspace.folder
    try:
        if not inspection.is_there(folder) or not _look(ledger).told:
            return None
    except WorkspaceError as error:
        return f"MLflow's store: {error}"
    except sqlite3.DatabaseError as error:
        return f"MLflow's store cannot be read ({error}): `knockout doctor` tells what to do"
    background = BackgroundMirror(folder)
    background.perform("what earlier commands missed", lambda mirror: catch_up(ledger, mirror=mirror))
    return background.close(timeout_seconds=60.0, say=say)


def catch_up(ledger: Ledger, *, mirror: Mirror) -> None:
    """Tell MLflow what it lacks of ended submissions. One process does so at a time; others leave it at that."""
    lock = ledger.workspace.folder / "mlflow" / "telling.lock"
    try:
        with locked(lock, timeout_seconds=0.0):
            look = _look(ledger)
            tell_again(mirror, ledger=ledger, told=look.told)
            for name in look.settled:
                note_shown(ledger, name)
    except ServiceError:
        log.debug("another process tells MLflow what it lacks")


@dataclass(frozen=True)
class _Look:
    """What a look at the submissions found that are not known to be shown as they are."""

    told: tuple[Told, ...]
    """What is to be told."""
    settled: tuple[str, ...]
    """The submissions that MLflow shows, and of which nothing can change any more."""


def _look(ledger: Ledger) -> _Look:
    if not (submitted := owed_submissions(ledger)):
        return _Look((), ())
    asked = every_ask(ledger, of=[one.submission for one in submitted])
    owed, known = owed_of(submitted, asked, store_exists=True), entries(ledger)
    told = missing(ledger, owed=owed, known=known)
    open_ = {ask.submission for ask in asked if not (known[ask.identity].finished or known[ask.identity].state == PRUNED)}
    open_ |= {one.submission.submission for one in told}
    return _Look(tuple(told), tuple(one.submission for one in submitted if one.submission not in open_))


def owed_of(submitted: Sequence[Submitted], asked: Iterable[Ask], *, store_exists: bool) -> Owed:
    """What some submissions owe; leaves out those in work.

    Where nothing was noted of one, that the store exists says that it was mirrored.
    """
    mirrored = [one for one in submitted if one.state != "running"]
    mirrored = [one for one in mirrored if (store_exists if one.mirrored is None else one.mirrored)]
    asks: dict[str, dict[str, Ask]] = {one.submission: {} for one in mirrored}
    for ask in asked:
        if ask.submission in asks:
            asks[ask.submission].setdefault(ask.identity, ask)  # of equal runs MLflow has the first one's name
    return Owed(tuple(mirrored), {name: tuple(found.values()) for name, found in asks.items()})


def missing(ledger: Ledger, *, owed: Owed, known: Mapping[str, Entry]) -> list[Told]:
    """Of each submission what MLflow does not show, or shows otherwise; only those where there is something.

    A run that several submissions of a study asked for is shown once, and told by the first.
    """
    there = inspection.is_there(ledger.workspace.folder)
    parents = inspection.shown(ledger.workspace.folder, key=naming.SUBMISSION) if there else {}
    children = inspection.shown(ledger.workspace.folder, key=naming.IDENTITY) if there else {}
    runs = _runs(ledger, owed=owed)
    told: list[Told] = []
    taken: set[tuple[str, str]] = set()
    for one in owed.submissions:
        parent = parents.get((one.study, one.submission))
        asks = owed.asks[one.submission]
        shown = {ask.identity: children.get((one.study, ask.identity)) for ask in asks}
        known_asks = [ask for ask in asks if ask.identity in runs and (one.study, ask.identity) not in taken]
        owing = [ask for ask in known_asks if _owes(one, run=known[ask.identity], shown=shown[ask.identity])]
        lacking = [(ask, run) for ask in owing if not _same(shown[ask.identity], run=(run := runs[ask.identity]))]
        taken |= {(one.study, run.identity) for _, run in lacking}
        closes = parent is None or parent.state != one.state or parent.status == "RUNNING"
        if lacking or closes:
            told.append(Told(one, asks, tuple(lacking), parent.run_id if parent is not None else None, closes))
    return told


def _owes(one: Submitted, *, run: Entry, shown: Shown | None) -> bool:
    """Whether a submission is to show a run that nobody holds: one that is shown already, and one that it came so far as to
    show. A done submission came to all, another one to what ended since it began.
    """
    came_to = shown is not None or one.state == "done" or run.since >= one.created
    return came_to and not run.held and run.state != "planned"


def _same(shown: Shown | None, *, run: LedgerRun) -> bool:
    """Whether MLflow says of a run what the ledger says."""
    if shown is None or shown.status == "RUNNING" or (shown.state, shown.reason or None) != (run.state, run.reason or None):
        return False
    finals = {naming.allowed(name): value for name, value in run.metrics.items() if math.isfinite(value)}
    return finals == shown.final


def _runs(ledger: Ledger, *, owed: Owed) -> dict[str, LedgerRun]:
    return {run.identity: run for run in ledger.runs({ask.identity for asks in owed.asks.values() for ask in asks})}
