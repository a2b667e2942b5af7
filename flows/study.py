"""The study flow: prepare the corpus, train every run, judge and report. Orchestration only.

The ledger is the truth about every run; this flow shows the same to Prefect. It is Completed only when every run that it
owed has a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from httpx import HTTPError
from prefect import flow, tags, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.exceptions import PrefectException, TerminationSignal
from prefect.futures import wait
from prefect.task_runners import ThreadPoolTaskRunner

from knockout.declare.plan import Cell
from knockout.errors import RunEnded, RunError, ServiceError
from knockout.submission.bind import BoundRun
from knockout.submission.concluding import Concluding
from knockout.submission.road import Road
from knockout.submission.waiting import raise_faults, wait_awake
from reconciling import FLOW, state_of
from states import workspace_tag


@task(name="corpus", cache_policy=NO_CACHE, persist_result=False)
def prepare_corpus(road: Road) -> None:
    """Tokenize the corpus, or find it prepared."""
    road.prepare()


@task(name="tune", task_run_name="tune {name}", cache_policy=NO_CACHE, persist_result=False)
def tune_cell(name: str, road: Road, cell: Cell) -> dict[str, float]:
    """Search one cell's settings; the best ones."""
    return road.tune(cell).chosen


@task(name="run", task_run_name="{name}", cache_policy=NO_CACHE, persist_result=False)
def train_run(name: str, road: Road, run: BoundRun) -> str | State[Any]:
    """Bring one run to its end, in a process of its own; the task ends as the run does."""
    try:
        return road.train(run).run.state
    except RunEnded as ended:
        return state_of(ended.state, reason=ended.reason)


@task(name="verdicts", cache_policy=NO_CACHE, persist_result=False)
def conclude(road: Road) -> Concluding:
    """Judge the claims and write the report."""
    return road.conclude()


def submit(road: Road) -> Concluding:
    """Walk a road under Prefect, as one flow run named after the submission, which ends in the submission's state.

    Raises:
        KeyboardInterrupt: the command is to end.
        ServiceError: Prefect's server was lost on the way; the road can be walked on without it.
        KnockoutError: what a step of the road raises; the flow run has failed then.
    """
    # Threads only wait here: each run trains in a process of its own, one for each slot.
    runner: Any = ThreadPoolTaskRunner(max_workers=road.hands.num_threads + 1)  # generic in a type that Prefect leaves open

    @flow(name=FLOW, flow_run_name=road.submission, task_runner=runner, persist_result=False, validate_parameters=False)
    def study(study: str, submission: str) -> State[Any]:
        try:
            concluding = walk(road)
        except (RunError, KeyboardInterrupt, TerminationSignal) as error:
            cut.append(error)
            state, reason = road.ending(error)
            return state_of(state, reason=reason)
        ended.append(concluding)
        return state_of(concluding.state, reason=concluding.reason)

    ended: list[Concluding] = []
    cut: list[BaseException] = []
    try:
        with tags(workspace_tag(road.workspace.folder)):
            study(study=road.plan.study.study, submission=road.submission)
    except (HTTPError, PrefectException) as error:
        if not (ended or cut):
            raise ServiceError(f"Prefect's server was lost ({type(error).__name__})") from None
    for error in cut:
        raise error if isinstance(error, RunError) else KeyboardInterrupt
    return ended[0]


def walk(road: Road) -> Concluding:
    """The steps of a road as tasks of the flow run that calls; raises what they raise."""
    prepare_corpus(road)
    _tune_all(road)
    if road.is_over:
        return conclude(road)
    _train_all(road, road.bind())
    while road.look_again():
        _train_all(road, road.bind())
    _train_all(road, road.pruned())
    return conclude(road)


def _tune_all(road: Road) -> None:
    futures = [tune_cell.submit(name=f"{cell.variant} · {cell.size}", road=road, cell=cell) for cell in road.to_tune]
    ended = _all(road, futures)
    road.raise_if_stopped()
    for future in ended if not road.is_over else ():
        future.result()


def _train_all(road: Road, runs: Sequence[BoundRun]) -> None:
    futures = _all(road, [train_run.submit(name=run.name, road=road, run=run) for run in runs])
    raise_faults(future.state.data for future in futures)
    road.raise_if_stopped()


def _all(road: Road, futures: list[Any]) -> list[Any]:
    """The futures, once all have ended; when the wait is interrupted, they are asked to stop."""
    try:
        wait_awake([future.wrapped_future for future in futures])
    except BaseException:
        road.interrupt()
        wait(futures)
        raise
    return futures
