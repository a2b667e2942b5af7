"""The work pools of a Prefect server: which there are, who works for them, and taking one out.

The invariant: a pool is made by a worker, by a schedule or by hand, and never by a submission that names it wrongly.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from httpx import HTTPError
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    WorkPoolFilter,
    WorkPoolFilterName,
)
from prefect.client.schemas.objects import StateType, Worker
from prefect.exceptions import PrefectException

from knockout.declare.problems import nearest
from knockout.errors import InputError, ServiceError
from knockout.services.catalog import POOL, STUDIES, TRAINING

PROCESS = "process"
"""The kind of a pool whose flow runs are processes."""
OPEN = (StateType.SCHEDULED, StateType.PENDING, StateType.RUNNING, StateType.CANCELLING)


def check_pool(pool: str) -> None:
    """Refuse a pool that the server does not have; the default one is always at hand.

    Raises:
        InputError: there is none of that name.
        ServiceError: Prefect's server does not answer.
    """
    with _server() as client:
        if pool != POOL:
            _check(client, pool=pool)


def check_kind(pool: str) -> None:
    """Refuse a pool whose flow runs are no processes of the worker's machine; one that is not there will be made.

    Raises:
        InputError: it is of another kind.
        ServiceError: Prefect's server does not answer.
    """
    with _server() as client:
        kinds = {one.name: one.type for one in client.read_work_pools()}
    if kinds.get(pool, PROCESS) != PROCESS:
        raise InputError(
            f"pool '{pool}' is one of {kinds[pool]}, and `knockout worker` runs processes: "
            f"`prefect worker start --pool '{pool}'` works for it"
        )


def num_online(pool: str) -> int:
    """Workers of a pool that are online; none for a pool that is not there. Raises ServiceError."""
    with _server() as client:
        return count_online(client, pool=pool) if pool in _names(client) else 0


def count_online(client: SyncPrefectClient, *, pool: str) -> int:
    """The same, through a client that is open."""
    registered = client.read_workers_for_work_pool(pool)
    return num_workers([one for one in registered if one.status is not None and one.status.value == "ONLINE"])


def num_workers(registered: list[Worker]) -> int:
    """Workers among what is registered: one of `knockout worker` is registered once for each queue."""
    return len({one.name.removesuffix(f" {STUDIES}").removesuffix(f" {TRAINING}") for one in registered})


def remove(pool: str) -> int:
    """Take a pool out of the server, with its deployments; how many those were.

    Raises:
        InputError: there is none of that name, or it is in use.
        ServiceError: Prefect's server does not answer.
    """
    with _server() as client:
        _check(client, pool=pool)
        if online := count_online(client, pool=pool):
            raise InputError(f"pool '{pool}' has workers online ({online}): stop them first")
        named = WorkPoolFilter(name=WorkPoolFilterName(any_=[pool]))
        of_state = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=list(OPEN))))
        if runs := client.read_flow_runs(flow_run_filter=of_state, work_pool_filter=named, limit=1):
            raise InputError(
                f"pool '{pool}' still has work ({runs[0].name}): `knockout stop` it, or remove its schedule, first"
            )
        deployments = client.read_deployments(work_pool_filter=named)
        for deployment in deployments:
            client.delete_deployment(deployment.id)
        client.delete_work_pool(pool)
        return len(deployments)


def _check(client: SyncPrefectClient, *, pool: str) -> None:
    if pool not in (there := _names(client)):
        known = f"there are: {', '.join(there)}" if there else "there are none"
        raise InputError(
            f"no work pool '{pool}' ({known}){nearest(pool, there)}; `knockout worker --pool '{pool}'` makes it"
        )


def _names(client: SyncPrefectClient) -> list[str]:
    return sorted(one.name for one in client.read_work_pools())


@contextmanager
def _server() -> Iterator[SyncPrefectClient]:
    try:
        with get_client(sync_client=True) as client:
            yield client
    except (HTTPError, PrefectException) as error:
        raise ServiceError(f"Prefect's server does not answer ({type(error).__name__}: {error})") from None
