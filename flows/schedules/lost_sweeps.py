"""Flow runs of schedules whose process died: each holds its schedule's one place for as long as it is open in Prefect.

The invariant: only what the ledger does not have at work is closed. A sweep that was lost is asked for once more, and one
that was asked for so is not. To do it again changes nothing.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from uuid import UUID

from httpx import HTTPError
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterTags,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import PrefectException
from prefect.states import Crashed, Scheduled

from knockout.errors import ServiceError
from knockout.ledger.store import Ledger
from knockout.ledger.ticks import RUNNING, last_ticks
from reconciling import OPEN
from schedules.scheduling import TAG

BEGIN_SECONDS = 180.0
"""So long a flow run that a worker has may take to begin its sweep on a busy machine, or to tell how it ended."""
HAND_ON_SECONDS = 30.0
"""A process that is told to end has so long to end."""
DIED = "its process died"


def close_lost(ledger: Ledger, *, idle: bool = False) -> None:
    """Close the flow runs of this workspace's schedules that no process is at work on any more, and ask for them anew.

    `idle`: no worker of this workspace runs, so what one has taken is lost however short a time ago.

    Raises:
        ServiceError: Prefect's server does not answer.
        WorkspaceError: the ledger cannot be read.
    """
    try:
        with get_client(sync_client=True) as client:
            if not (found := [run for run in _open(client) if idle or _is_old(run)]):
                return
            running = {name for name, tick in last_ticks(ledger).items() if tick.state in RUNNING}
            for run in found:
                ours = run.parameters.get("workspace") == str(ledger.workspace.folder)
                if ours and run.parameters.get("schedule") not in running:
                    client.set_flow_run_state(run.id, Crashed(message=DIED), force=True)
                    _ask(client, run)
    except (HTTPError, PrefectException) as error:
        raise ServiceError(f"Prefect's server does not answer ({type(error).__name__})") from None


def ask_again(flow_run: UUID) -> None:
    """Have a sweep whose worker is being stopped made by the next one, when this one's place is free.

    Where Prefect does not answer, it stays open there, and is closed and asked for when somebody looks.
    """
    with suppress(HTTPError, PrefectException), get_client(sync_client=True) as client:
        _ask(client, client.read_flow_run(flow_run), wait_seconds=HAND_ON_SECONDS)


def _ask(client: SyncPrefectClient, run: FlowRun, *, wait_seconds: float = 0.0) -> None:
    """Prefect may have cancelled, for the place that was not free, those that were due since."""
    if run.deployment_id is None or not run.auto_scheduled:
        return
    if any(schedule.active for schedule in client.read_deployment(run.deployment_id).schedules):
        due = Scheduled(scheduled_time=datetime.now(UTC) + timedelta(seconds=wait_seconds))
        client.create_flow_run_from_deployment(run.deployment_id, state=due, idempotency_key=f"lost {run.id}")


def _open(client: SyncPrefectClient) -> list[FlowRun]:
    """Of each schedule there is one at most."""
    return client.read_flow_runs(
        deployment_filter=DeploymentFilter(tags=DeploymentFilterTags(all_=[TAG])),
        flow_run_filter=FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=OPEN))),
    )


def _is_old(run: FlowRun) -> bool:
    return run.state is not None and datetime.now(UTC) - run.state.timestamp > timedelta(seconds=BEGIN_SECONDS)
