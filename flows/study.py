"""The study flow: prepare the corpus, train every run, judge and report. Orchestration only.

The ledger is the truth about every run; this flow shows the same to Prefect. It is Completed only when every run that it
owed has a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.futures import wait
from prefect.task_runners import ThreadPoolTaskRunner

from knockout.errors import RunError
from knockout.submission.bind import BoundRun
from knockout.submission.concluding import Concluding
from knockout.submission.plain import raise_faults
from knockout.submission.road import Road


@task(name="corpus", cache_policy=NO_CACHE, persist_result=False)
def prepare_corpus(road: Road) -> list[BoundRun]:
    """Tokenize the corpus, or find it prepared."""
    return road.prepare()


@task(name="run", task_run_name="{name}", cache_policy=NO_CACHE, persist_result=False)
def train_run(name: str, road: Road, run: BoundRun) -> str:
    """Bring one run to its end, in a process of its own; fails when there is no result."""
    return road.train(run).run.state


@task(name="verdicts", cache_policy=NO_CACHE, persist_result=False)
def conclude(road: Road) -> Concluding:
    """Judge the claims and write the report."""
    return road.conclude()


def submit(road: Road) -> Concluding:
    """Walk a road under Prefect, as one flow run named after the submission.

    Raises:
        KnockoutError: what a step of the road raises; the flow run has failed then.
    """
    # Threads only wait here: each run trains in a process of its own, one for each slot.
    runner: Any = ThreadPoolTaskRunner(max_workers=road.num_slots + 1)  # generic in a type that Prefect leaves open

    @flow(name="study", flow_run_name=road.submission, task_runner=runner, persist_result=False, validate_parameters=False)
    def study(study: str, submission: str) -> str:
        runs = prepare_corpus(road)
        _train_all(road, runs)
        concluding = conclude(road)
        ended.append(concluding)
        if concluding.state != "done":
            raise RunError(concluding.reason or concluding.state)
        return concluding.state

    ended: list[Concluding] = []
    try:
        study(study=road.plan.study.study, submission=road.submission)
    except RunError:
        if not ended:
            raise
    return ended[0]


def _train_all(road: Road, runs: Sequence[BoundRun]) -> None:
    futures = [train_run.submit(name=run.name, road=road, run=run) for run in runs]
    try:
        wait(futures)
    except BaseException:
        road.limits.stop.set()
        wait(futures)
        raise
    raise_faults(future.state.data for future in futures)
