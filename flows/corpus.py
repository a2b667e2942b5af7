"""Preparing a corpus under Prefect: its chunks and ranges are tasks on this machine's cores, or flow runs on a work pool.

The invariant: what a task makes lies in the workspace, so Prefect's results are not needed. A part that Prefect lost is done
here; one that it runs twice finds what was made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import State
from prefect.states import Completed
from prefect.task_runners import ProcessPoolTaskRunner

from knockout.corpus.building import WORK
from knockout.corpus.preparing.orders import do_order, write_order
from knockout.corpus.preparing.workers import usable_cores
from pools.addresses import full_name

Task = TypeVar("Task")
Result = TypeVar("Result")

CORES: Any = ProcessPoolTaskRunner(max_workers=usable_cores())  # generic in a type that Prefect leaves open
PARTS_A_FLOW_RUN = 16
"""Chunks or ranges that are sent to a pool together: some hundred megabytes, against seconds for a process to start."""
POLL_SECONDS = 1.0


@task(name="part", task_run_name="{name}", cache_policy=NO_CACHE, persist_result=False)
def do_part(name: str, function: Callable[[Task], Result], argument: Task) -> None:
    """Do one task of a preparation; its result lies in the workspace."""
    function(argument)


class TaskWorkers:
    """Does each task as a Prefect task of the flow run around it."""

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """The results in the order of the tasks."""
        futures = [
            do_part.submit(name=f"{function.__name__} {number + 1} of {len(tasks)}", function=function, argument=one)
            for number, one in enumerate(tasks)
        ]
        for one, future in zip(tasks, futures, strict=True):
            future.result()
            yield function(one)

    def close(self) -> None:
        """The flow run ends its tasks."""


@flow(name="corpus-part", persist_result=False)
def corpus_part(order: str) -> State[Any]:
    """Do the chunks or ranges that a file of the workspace names."""
    return Completed(message=f"{do_order(Path(order))} done")


class PoolWorkers:
    """Does tasks as flow runs of a pool's deployment `corpus-part`, several of them in each."""

    def __init__(self, *, pool: str) -> None:
        self.client: SyncPrefectClient = get_client(sync_client=True).__enter__()
        self.deployment = self.client.read_deployment_by_name(full_name("corpus-part", pool=pool)).id

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """The results in the order of the tasks; what a flow run did not do is done here."""
        waiting = iter(tasks)
        orders: list[tuple[list[Task], UUID]] = []
        while group := list(islice(waiting, PARTS_A_FLOW_RUN)):
            orders.append((group, self._send(function, group, number=len(orders))))
        for group, flow_run in orders:
            self._wait(flow_run)
            yield from map(function, group)

    def close(self) -> None:
        """Leave Prefect's server."""
        self.client.__exit__(None, None, None)

    def _send(self, function: Callable[[Any], object], group: list[Any], *, number: int) -> UUID:
        path = Path(group[0].room, WORK, f"order-{function.__name__}-{number:05d}-{time.time_ns()}.json")
        write_order(path, function=function, tasks=group)
        flow_run = self.client.create_flow_run_from_deployment(
            self.deployment, name=f"{function.__name__} {number}", parameters={"order": str(path)}, idempotency_key=str(path)
        )
        return flow_run.id

    def _wait(self, flow_run: UUID) -> None:
        while True:
            state = self.client.read_flow_run(flow_run).state
            if state is not None and state.is_final():
                return
            time.sleep(POLL_SECONDS)
