"""The flows that a worker runs, each in a process of its own; prefect.yaml names them.

The invariant: a parameter is an address or a name. What a run means, and what a submission asks for, lies in the workspace:
the one that is named, or the worker's own where machines share no disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pooling import MOST_WAITING, PoolHands
from prefect import flow
from prefect.client.schemas.objects import State
from prefect.exceptions import TerminationSignal
from prefect.states import Cancelled, Completed, Failed
from prefect.task_runners import ThreadPoolTaskRunner
from reconciling import FLOW, state_of
from study import walk
from sweeps import scheduled_sweep, sweep

from corpus import CORES, PoolWorkers, TaskWorkers
from knockout.declare.parallelism import Strategy
from knockout.errors import InputError, RunError
from knockout.ledger.lost import is_lost, take_over
from knockout.ledger.process import this_process
from knockout.ledger.stops import stop_requested
from knockout.ledger.store import Ledger, Submission
from knockout.ledger.workspace import Workspace, open_workspace
from knockout.services.catalog import POOL
from knockout.submission.listener import Listener
from knockout.submission.requests import Request, read_request, withdraw
from knockout.submission.road import Road
from knockout.submission.single import Ended, Order, bring
from knockout.submission.waiting import wait_awake
from knockout.training.stop import BY_USER, Stop

Made = TypeVar("Made")
WAITING: Any = ThreadPoolTaskRunner(max_workers=MOST_WAITING)  # generic in a type that Prefect leaves open


@flow(name=FLOW, task_runner=WAITING, persist_result=False)
def study(submission: str, workspace: str | None = None) -> State[Any]:
    """Bring a submitted study to its verdicts; the flow run ends in the submission's state."""
    place = _workspace(workspace)
    if (ended := _ended_before(submission, workspace=place)) is not None:
        return ended
    road = _road(read_request(submission, workspace=place), workspace=place)
    try:
        with road:
            concluding = walk(road)
    except (RunError, KeyboardInterrupt, TerminationSignal) as error:
        state, reason = road.ending(error)
        return state_of(state, reason=reason)
    return state_of(concluding.state, reason=concluding.reason)


@flow(name="training", persist_result=False)
def training(
    submission: str,
    run: str,
    workspace: str | None = None,
    run_seconds: float | None = None,
    until: float | None = None,
    devices: int = 1,
    strategy: Strategy = "ddp",
) -> State[Any]:
    """Bring one run to its sealed result, once, whoever else asks for it."""
    order, stop = Order(submission, run, run_seconds, until, devices, strategy), Stop()
    ended: Ended = _awake(partial(bring, order, workspace=_workspace(workspace), stop=stop), stop=stop)
    return state_of(ended.state, reason=ended.reason)


@flow(name="corpus", task_runner=CORES, persist_result=False)
def corpus(
    corpus: str, vocabulary: int, workspace: str | None = None, project: str | None = None, pool: str | None = None
) -> State[Any]:
    """Prepare a corpus for a vocabulary, or find it prepared: on this machine's cores, or on those of a pool."""
    from knockout.corpus.prepare import prepare
    from knockout.declare.load import load_corpus

    _enter(project)
    declared, base = load_corpus(corpus)
    folder = _workspace(workspace).corpora
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
    if schedule is not None:
        return scheduled_sweep(schedule, workspace=_workspace(workspace))
    _enter(project)
    given = {"--size": size, "--pool": pool or POOL, "--workspace": str(_workspace(workspace).folder)}
    named = [word for study in studies or () for word in ("--studies", study)]
    options = [word for name, value in given.items() if value is not None for word in (name, value)]
    return sweep(["nightly", *named, *options])


@flow(name="reproduce", persist_result=False)
def reproduce(
    pool: str,
    only: list[str] | None = None,
    size: str | None = None,
    workspace: str | None = None,
    project: str | None = None,
) -> State[Any]:
    """Decide the claims of studies by training on the pool, one study after the other; all claims, or the named ones."""
    from knockout.cli.unattended import run_command
    from knockout.declare.claimed import choose_studies, claimed_studies

    _enter(project)
    chosen = choose_studies(claimed_studies(size=size), names=only or [])
    place = str(_workspace(workspace).folder)
    arguments = ["--pool", pool, "--wait", "--workspace", place, *(["--size", size] if size is not None else [])]
    missed = [one.name for one in chosen if run_command(["submit", one.name, *arguments], silent=False)]
    return Failed(message=f"without verdicts: {', '.join(missed)}") if missed else Completed()


def _road(request: Request, *, workspace: Workspace) -> Road:
    """The road of a submission, with the pool's hands; one whose declaration is wrong by now waits no longer."""
    try:
        _enter(str(request.place(workspace)))
        loaded = request.load()
        return Road(
            loaded,
            workspace=workspace,
            options=request.options,
            listener=Listener(),
            stop=Stop(),
            submission=request.submission,
            hands=partial(PoolHands, pool=request.pool),
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
        known, stopped = ledger.submission(submission), stop_requested(ledger, submission=submission)
    finally:
        ledger.close()
    if known is None:
        return Cancelled(message="it was called off before a worker began it") if stopped else None
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


def _workspace(folder: str | None) -> Workspace:
    """The workspace that a submission names, or else this worker's own."""
    return open_workspace(Path(folder) if folder is not None else None)


def _enter(project: str | None) -> None:
    """Look names up as in the folder that the study was submitted from.

    Raises:
        InputError: it is not on this machine.
    """
    if project is None:
        return
    if not Path(project).is_dir():
        raise InputError(f"the project's folder {project} is not on this machine: workers and users must share it")
    os.chdir(project)


def _awake(work: Callable[[], Made], *, stop: Stop) -> Made:
    """Do the work in a thread, so that a signal is heard; it asks the work to stop, and waits for it."""
    with ThreadPoolExecutor(1) as pool:
        future: Future[Made] = pool.submit(work)
        try:
            wait_awake([future])
        except (KeyboardInterrupt, TerminationSignal):
            stop.end(BY_USER)
        return future.result()
