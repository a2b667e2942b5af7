"""Whether MLflow shows what the ledger knows, and what makes it so again.

The invariant: the ledger and the run files decide. A submission in work is left to itself, and MLflow's database is only
replaced when nobody uses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import cast, get_args

from knockout import services
from knockout.errors import ServiceError, WorkspaceError
from knockout.ledger.aside import set_aside
from knockout.ledger.inventory import Ask, Entry, Submitted
from knockout.ledger.lost import FORGOTTEN
from knockout.ledger.store import Ledger
from knockout.services.relocation import elsewhere, relocate
from knockout.submission.owed import Owed, missing, owed_of
from knockout.submission.retelling import Told, tell_again
from knockout.tracking import BackgroundMirror, Mirror, State, inspection, naming
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
    elif strays := _strays(ledger, submitted=submitted, known=known, busy=busy):
        what = f"it shows {_number(len(strays), 'run')} as going on that the ledger does not know to be in work"
        yield Finding("MLflow", "mlflow/mlflow.db", what, "ends them", partial(_end, ledger, strays=strays))


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


@dataclass(frozen=True)
class _Stray:
    """A run that MLflow shows as going on, and nobody will end."""

    run_id: str
    state: State
    reason: str


def _strays(ledger: Ledger, *, submitted: list[Submitted], known: Mapping[str, Entry], busy: bool) -> list[_Stray]:
    """Submissions and runs of an earlier ledger, which was lost while they went on."""
    names, strays = {one.submission for one in submitted}, list[_Stray]()
    for (_, name), shown in inspection.shown(ledger.workspace.folder, key=naming.SUBMISSION).items():
        if shown.status == "RUNNING" and name not in names:
            strays.append(_Stray(shown.run_id, "failed", FORGOTTEN))
    for (_, identity), shown in inspection.shown(ledger.workspace.folder, key=naming.IDENTITY).items():
        entry = known.get(identity)
        if shown.status == "RUNNING" and (entry is None or not (entry.held or busy)):
            ended = entry is not None and entry.state in get_args(State)
            state, reason = (entry.state, entry.reason) if entry is not None and ended else ("failed", FORGOTTEN)
            strays.append(_Stray(shown.run_id, cast(State, state), reason or ""))
    return strays


def _end(ledger: Ledger, *, strays: list[_Stray]) -> None:
    background = BackgroundMirror(ledger.workspace.folder)
    for one in strays:
        end = partial(_end_one, one=one)
        background.perform("what an earlier ledger knew of", end)
    if (missed := background.close(timeout_seconds=TELL_SECONDS)) is not None:
        raise ServiceError(missed)


def _end_one(mirror: Mirror, *, one: _Stray) -> None:
    mirror.close_run(one.run_id, state=one.state, reason=one.reason, final={}, artifacts={})


def _counted(told: list[Told]) -> str:
    """`17 runs and 1 submission`: a run is counted once, whoever asked for it."""
    runs = len({run.identity for one in told for _, run in one.runs})
    submissions = sum(one.closes for one in told)
    parts = [(runs, "run"), (submissions, "submission")]
    return " and ".join(_number(number, name) for number, name in parts if number)


def _number(number: int, name: str) -> str:
    return f"{number} {name}{'s' * (number > 1)}"
