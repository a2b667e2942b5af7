"""What a Prefect server knows of pools, for whoever looks: workers, what waits in each queue, what is scheduled next.

The invariant: read only.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from httpx import HTTPError
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    WorkPoolFilter,
    WorkPoolFilterName,
    WorkQueueFilter,
    WorkQueueFilterName,
)
from prefect.client.schemas.objects import StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import PrefectException

from knockout.errors import ServiceError
from knockout.services.catalog import STUDIES, TRAINING
from pools.inventory import count_online

MOST = 200
"""Flow runs of a queue that are counted."""


@dataclass(frozen=True)
class Queue:
    """A queue of a pool."""

    pool: str
    queue: str
    workers: int
    """Workers of the pool that are online."""
    running: int
    waiting: int
    """Flow runs that are due and have no worker yet."""
    next: float | None
    """When the next scheduled flow run is due, in seconds since 1970."""


def queues(*, now: datetime) -> list[Queue]:
    """The queues of every pool, of which there are two each.

    Raises:
        ServiceError: Prefect's server does not answer.
    """
    try:
        with get_client(sync_client=True) as client:
            pools = client.read_work_pools()
            return [_queue(client, pool=pool.name, queue=queue, now=now) for pool in pools for queue in (STUDIES, TRAINING)]
    except (HTTPError, PrefectException) as error:
        raise ServiceError(f"Prefect's server does not answer ({type(error).__name__})") from None


def _queue(client: SyncPrefectClient, *, pool: str, queue: str, now: datetime) -> Queue:
    open_ = [StateType.SCHEDULED, StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]
    runs = client.read_flow_runs(
        flow_run_filter=FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=open_))),
        work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=[pool])),
        work_queue_filter=WorkQueueFilter(name=WorkQueueFilterName(any_=[queue])),
        sort=FlowRunSort.EXPECTED_START_TIME_ASC,
        limit=MOST,
    )
    scheduled = [run for run in runs if run.state_type == StateType.SCHEDULED]
    due = [run for run in scheduled if run.expected_start_time is not None and run.expected_start_time <= now]
    later = [run.expected_start_time.timestamp() for run in scheduled if run.expected_start_time and run not in due]
    return Queue(
        pool, queue, count_online(client, pool=pool), len(runs) - len(scheduled), len(due), min(later, default=None)
    )
