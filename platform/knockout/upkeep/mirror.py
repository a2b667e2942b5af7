"""Whether MLflow shows what the ledger knows, and what makes it so again.

The invariant: the ledger and the run files decide. A submission in work is left to itself, and MLflow's database is only
replaced when nobody uses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from knockout import services
from knockout.errors import ServiceError, WorkspaceError
from knockout.ledger.aside import set_aside
from knockout.ledger.inventory import Ask, Entry, Submitted
from knockout.ledger.store import Ledger
from knockout.services.relocation import elsewhere, relocate
from knockout.submission.owed import Owed, missing, owed_of
from knockout.submission.retelling import Told, tell_again
from knockout.tracking import BackgroundMirror, inspection
from knockout.upkeep.finding import Finding

BESIDE = ("mlflow.db", "mlflow.db-wal", "mlflow.db-shm", "prepared", "artifacts")
"""What makes up MLflow's store."""
TELL_SECONDS = 3600.0
"""So long a store may take to be told all; thousands of runs take minutes."""


def mirror(ledger: Ledger, *, submitted: list[Submitted], asked: list[Ask], known: Mapping[str, Entry]) -> Iterator[Finding]:
    """What is wrong with a workspace's MLflow store."""
    workspace = ledger.workspace
    owed = owed_of(submitted, asked, store_exists=(workspace.folder / "mlflow").exists())
    busy = any(one.state == "running" for one in submitted)
    rebuild = partial(_rebuild, ledger, owed=owed, known=known, busy=busy)
    remedy = "builds it again from the ledger and the run files"
    if not inspection.is_there(workspace.folder):
        if owed.submissions:
            yield Finding("MLflow", "mlflow/mlflow.db", "it is missing", remedy, rebuild)
        return
    try:
        why = inspection.damage(workspace.folder)
    except WorkspaceError as error:
        yield Finding("MLflow", "mlflow/mlflow.db", str(error), "see there")
        return
    if why is not None:
        kept = f"{remedy}; the damaged one is moved to lost+found/"
        yield Finding("MLflow", "mlflow/mlflow.db", f"it is damaged: {why}", kept, rebuild)
        return
    if (found := elsewhere(workspace.folder)) is not None:
        what = f"{found.count} addresses name the workspace that this one was copied or moved from ({found.root})"
        repair = partial(relocate, workspace.folder)
        yield Finding("moved", "mlflow/mlflow.db", what, "makes them this workspace's", repair)
    if told := missing(ledger, owed=owed, known=known):
        what = f"it does not show {_counted(told)} of the ledger as they are"
        repair = partial(_tell, ledger, told=told)
        yield Finding("MLflow", "mlflow/mlflow.db", what, "writes them again", repair)


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
    _tell(ledger, told=missing(ledger, owed=owed, known=known))


def _tell(ledger: Ledger, *, told: list[Told]) -> None:
    background = BackgroundMirror(ledger.workspace.folder)  # it tries again, and says in a line what does not go
    background.perform("what it lacks", lambda mirror: tell_again(mirror, ledger=ledger, told=told))
    if (missed := background.close(timeout_seconds=TELL_SECONDS)) is not None:
        raise ServiceError(missed)


def _counted(told: list[Told]) -> str:
    """`17 runs and 1 submission`: a run is counted once, whoever asked for it."""
    runs = len({run.identity for one in told for _, run in one.runs})
    submissions = sum(one.closes for one in told)
    parts = [(runs, "run"), (submissions, "submission")]
    return " and ".join(f"{number} {name}{'s' * (number > 1)}" for number, name in parts if number)
