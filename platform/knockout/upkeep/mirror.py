"""Whether MLflow shows what the ledger knows, and what makes it so again.

The invariant: the ledger and the run files decide. A submission in work is left to itself, and MLflow's database is only
replaced when nobody uses it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from knockout import services
from knockout.errors import ServiceError
from knockout.ledger.inventory import Ask, Entry, Submitted
from knockout.ledger.store import FINISHED, Ledger, LedgerRun
from knockout.services.relocation import elsewhere, relocate
from knockout.tracking import inspection, naming
from knockout.tracking.inspection import Shown
from knockout.upkeep.finding import Finding
from knockout.upkeep.lost import set_aside
from knockout.upkeep.retelling import Told, tell_again

BESIDE = ("mlflow.db", "mlflow.db-wal", "mlflow.db-shm", "prepared", "artifacts")
"""What makes up MLflow's store."""


@dataclass(frozen=True)
class Owed:
    """What the mirror should show: the submissions that were mirrored, and of each what it asked for."""

    submissions: tuple[Submitted, ...]
    asks: Mapping[str, tuple[Ask, ...]]


def mirror(ledger: Ledger, *, submitted: list[Submitted], asked: list[Ask], known: Mapping[str, Entry]) -> Iterator[Finding]:
    """What is wrong with a workspace's MLflow store."""
    workspace = ledger.workspace
    owed = _owed(submitted, asked, store_exists=(workspace.folder / "mlflow").exists())
    busy = any(one.state == "running" for one in submitted)
    rebuild = partial(_rebuild, ledger, owed=owed, known=known, busy=busy)
    remedy = "builds it again from the ledger and the run files"
    if not inspection.database(workspace.folder).exists():
        if owed.submissions:
            yield Finding("MLflow", "mlflow/mlflow.db", "it is missing", remedy, rebuild)
        return
    if (why := inspection.damage(workspace.folder)) is not None:
        kept = f"{remedy}; the damaged one is moved to lost+found/"
        yield Finding("MLflow", "mlflow/mlflow.db", f"it is damaged: {why}", kept, rebuild)
        return
    if (found := elsewhere(workspace.folder)) is not None:
        what = f"{found.count} addresses name the workspace that this one was copied or moved from ({found.root})"
        repair = partial(relocate, workspace.folder)
        yield Finding("moved", "mlflow/mlflow.db", what, "makes them this workspace's", repair)
    if told := _missing(ledger, owed=owed, known=known):
        what = f"it does not show {len(told)} of the ledger's runs and submissions as they are"
        yield Finding("MLflow", "mlflow/mlflow.db", what, "writes them again", partial(tell_again, ledger, told=told))


def _owed(submitted: list[Submitted], asked: list[Ask], *, store_exists: bool) -> Owed:
    """Leaves out submissions in work; where nothing was noted, a store that exists says that they were mirrored."""
    mirrored = [one for one in submitted if one.state != "running"]
    mirrored = [one for one in mirrored if (store_exists if one.mirrored is None else one.mirrored)]
    asks: dict[str, dict[str, Ask]] = {one.submission: {} for one in mirrored}
    for ask in asked:
        if ask.submission in asks:
            asks[ask.submission].setdefault(ask.identity, ask)  # of equal runs MLflow has the first one's name
    return Owed(tuple(mirrored), {name: tuple(found.values()) for name, found in asks.items()})


def _missing(ledger: Ledger, *, owed: Owed, known: Mapping[str, Entry]) -> list[Told]:
    """Of each submission what MLflow does not show, or shows otherwise; only those where there is something."""
    there = inspection.database(ledger.workspace.folder).exists()
    parents = inspection.shown(ledger.workspace.folder, key=naming.SUBMISSION) if there else {}
    children = inspection.shown(ledger.workspace.folder, key=naming.IDENTITY) if there else {}
    runs = _runs(ledger, owed=owed)
    told: list[Told] = []
    for one in owed.submissions:
        parent = parents.get((one.study, one.submission))
        asks = owed.asks[one.submission]
        shown = {ask.identity: children.get((one.study, ask.identity)) for ask in asks}
        owing = [ask for ask in asks if ask.identity in runs and _was_shown(one, run=known[ask.identity])]
        lacking = [(ask, run) for ask in owing if not _same(shown[ask.identity], run=(run := runs[ask.identity]))]
        closes = parent is None or parent.state != one.state or parent.status == "RUNNING"
        if lacking or closes:
            told.append(Told(one, asks, tuple(lacking), parent.run_id if parent is not None else None, closes))
    return told


def _was_shown(one: Submitted, *, run: Entry) -> bool:
    """Whether a submission came so far as to show a run: a done one showed all, another one what ended since it began."""
    return not run.held and run.state != "planned" and (one.state == "done" or run.since >= one.created)


def _same(shown: Shown | None, *, run: LedgerRun) -> bool:
    """Whether MLflow says of a run what the ledger says."""
    if shown is None or shown.state != run.state or shown.status == "RUNNING":
        return False
    finals = {naming.allowed(name): value for name, value in run.metrics.items() if math.isfinite(value)}
    return run.state not in FINISHED or finals.items() <= shown.final.items()


def _rebuild(ledger: Ledger, *, owed: Owed, known: Mapping[str, Entry], busy: bool) -> None:
    """A new store in the place of one that is missing or damaged."""
    place = ledger.workspace.folder / "mlflow"
    if busy:
        raise ServiceError("a study is being run, and may be writing there: repair when it has ended")
    if any(server.name == "mlflow" and server.running for server in services.status(ledger.workspace.folder)):
        raise ServiceError("its server runs: stop it with `knockout down`, then repair")
    for name in BESIDE:
        if (place / name).exists():
            set_aside(place / name, workspace=ledger.workspace, why="MLflow's database was missing or damaged")
    tell_again(ledger, told=_missing(ledger, owed=owed, known=known))


def _runs(ledger: Ledger, *, owed: Owed) -> dict[str, LedgerRun]:
    return {run.identity: run for run in ledger.runs({ask.identity for asks in owed.asks.values() for ask in asks})}
