"""The flows that a worker runs, each in a process of its own; prefect.yaml names them.

The invariant: a parameter is an address or a name. What a run means, and what a submission asks for, lies in the workspace:
the one that is named, or the worker's own where machines share no disk.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.exceptions import TerminationSignal
from prefect.states import Cancelled, Completed
from prefect.task_runners import ThreadPoolTaskRunner

from bringing import interrupted, workspace_at
from corpus import CORES, PoolWorkers, TaskWorkers
from knockout.errors import InputError, RunError
from knockout.ledger.lost import is_lost, take_over
from knockout.ledger.process import this_process
from knockout.ledger.stops import wanted_stop
from knockout.ledger.store import Ledger, Submission
from knockout.ledger.workspace import Workspace
from knockout.submission.listener import Listener
from knockout.submission.requests import Request, read_request, withdraw
from knockout.submission.road import Road
from knockout.training.stop import Stop
from pools.addresses import enter, pool_of_this
from pools.hands import MOST_WAITING, PoolHands
from reconciling import FLOW, state_of
from run_log import StudyLog
from study import walk

WAITING: Any = ThreadPoolTaskRunner(max_workers=MOST_WAITING)  # generic in a type that Prefect leaves open


@flow(name=FLOW, task_runner=WAITING, persist_result=False)
def study(submission: str, workspace: str | None = None) -> State[Any]:
    """Bring a submitted study to its verdicts; the flow run ends in the submission's state."""
    place = workspace_at(workspace)
    if (ended := _ended_before(submission, workspace=place)) is not None:
        return ended
    log = StudyLog()
    road = _road(read_request(submission, workspace=place), workspace=place, listener=log)
    try:
        with road:
            concluding = walk(road)
    except (RunError, KeyboardInterrupt, TerminationSignal) as error:
        state, reason = road.ending(error)
        if not road.is_left:
            log.note(f"{state}: {reason}")
        return state_of(state, reason=reason)
    log.ended(concluding)
    return state_of(concluding.state, reason=concluding.reason)


@flow(name="corpus", task_runner=CORES, persist_result=False)
def corpus(
    corpus: str, vocabulary: int, workspace: str | None = None, project: str | None = None, pool: str | None = None
) -> State[Any]:
    """Prepare a corpus for a vocabulary, or find it prepared: on this machine's cores, or on those of a pool."""
    from knockout.corpus.prepare import prepare
    from knockout.declare.load import load_corpus

    enter(project)
    declared, base = load_corpus(corpus)
    folder = workspace_at(workspace).corpora
    workers = TaskWorkers() if pool is None else PoolWorkers(pool=pool)
    try:
        made = prepare(declared, vocabulary=vocabulary, folder=folder, base=base, workers=workers)
    finally:
        workers.close()
    return Completed(message=f"{made.folder.name}{' (was there)' if made.reused else ''}: {made.manifest.digest}")


@flow(name="nightly", persist_result=False)
def nightly(
    workspace: str | None = None,
    schedule: str | None = None,
    studies: list[str] | None = None,
    size: str | None = None,
    pool: str | None = None,
    project: str | None = None,
) -> State[Any]:
    """Run studies with fresh seeds on the pool, and tell what changed; of a schedule one sweep at a time."""
    from knockout.cli.night import by_hand
    from schedules.sweeps import scheduled_sweep, sweep  # what only this flow needs costs every study's start otherwise

    if schedule is not None:
        return scheduled_sweep(schedule, workspace=workspace_at(workspace))
    enter(project)
    order = by_hand(studies or (), size=size, pool=pool or pool_of_this())
    return sweep(order, workspace=workspace_at(workspace))


@flow(name="reproduce", persist_result=False)
def reproduce(
    pool: str | None = None,
    only: list[str] | None = None,
    size: str | None = None,
    workspace: str | None = None,
    project: str | None = None,
) -> State[Any]:
    """Decide the claims of studies by training on the pool, one study after the other; all claims, or the named ones."""
    from deciding import decide  # as above

    enter(project)
    return decide(only or (), size=size, pool=pool or pool_of_this(), workspace=workspace_at(workspace))


def _road(request: Request, *, workspace: Workspace, listener: Listener) -> Road:
    """The road of a submission, with the pool's hands; one whose declaration is wrong by now waits no longer."""
    try:
        enter(str(request.place(workspace)))
        loaded = request.load()
        return Road(
            loaded,
            workspace=workspace,
            options=request.options,
            listener=listener,
            stop=Stop(),
            submission=request.submission,
            hands=partial(PoolHands, pool=request.pool),
            interrupted=interrupted,
        )
    except InputError:
        ledger = Ledger(workspace)
        withdraw(request.submission, ledger=ledger)
        ledger.close()
        raise


def _ended_before(submission: str, *, workspace: Workspace) -> State[Any] | None:
    """The state of a submission that was walked already, or called off: a flow run that is repeated does nothing."""
    ledger = Ledger(workspace)
    try:
        ledger.reconcile()
        known, stopped = ledger.submission(submission), wanted_stop(ledger, submission=submission)
    finally:
        ledger.close()
    if known is None:
        return Cancelled(message=stopped.reason) if stopped is not None else None
    if known.state == "running" or (is_lost(known) and not _taken_over(known, workspace=workspace)):
        return Cancelled(message=f"{known.owner or 'another process'} works on it")
    if is_lost(known):
        return None
    return state_of(known.state, reason=known.reason)


def _taken_over(known: Submission, *, workspace: Workspace) -> bool:
    ledger = Ledger(workspace)
    try:
        return take_over(ledger, submission=known.submission, owner=this_process())
    finally:
        ledger.close()
