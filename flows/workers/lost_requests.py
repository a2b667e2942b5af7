"""Submissions that a worker took and that it died, or went down, before beginning: they are asked for anew.

The invariant: nothing of them is in the ledger, so nothing is lost; who begins late after all finds them begun.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from httpx import HTTPError
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterName
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import PrefectException
from prefect.states import Crashed

from knockout.errors import ServiceError
from knockout.ledger.store import Ledger
from knockout.submission.requests import Request, waiting_requests
from pools.addresses import full_name, workspace_address

BEGIN_SECONDS = 180.0
"""So long a process may take to start on a busy machine."""
ASKED = 3
"""So often a submission is asked for, when whoever takes it dies each time."""


def ask_for_unbegun(ledger: Ledger, *, pool: str | None = None) -> None:
    """Ask for what was taken long ago and never begun; of one pool, or of every.

    Raises:
        ServiceError: Prefect's server does not answer.
        WorkspaceError: the ledger cannot be read.
    """
    known = frozenset(one.submission for one in ledger.submissions())
    waiting = [one for one in waiting_requests(ledger, known=known) if pool in (None, one.pool)]
    if not waiting:
        return
    try:
        with get_client(sync_client=True) as client:
            for one in waiting:
                _look_at(client, one, ledger=ledger)
    except (HTTPError, PrefectException) as error:
        raise ServiceError(f"Prefect's server does not answer ({type(error).__name__})") from None


def _look_at(client: SyncPrefectClient, one: Request, *, ledger: Ledger) -> None:
    named = FlowRunFilter(name=FlowRunFilterName(any_=[one.submission]))
    runs = client.read_flow_runs(flow_run_filter=named, sort=FlowRunSort.EXPECTED_START_TIME_DESC, limit=ASKED)
    if not runs or len(runs) == ASKED or not _is_stuck(runs[0]):
        return
    deployment = client.read_deployment_by_name(full_name("study", pool=one.pool))
    client.create_flow_run_from_deployment(
        deployment.id,
        name=one.submission,
        parameters={"workspace": workspace_address(ledger.workspace), "submission": one.submission},
        idempotency_key=f"{one.submission}:{runs[0].id}",
    )
    client.set_flow_run_state(runs[0].id, Crashed(message="its worker died before it began"), force=True)


def _is_stuck(run: FlowRun) -> bool:
    """Whether a worker has taken it, and its process did not start, or nothing has come of that for long."""
    if run.state is None or run.state.type not in (StateType.PENDING, StateType.RUNNING):
        return run.state is not None and run.state.is_crashed()
    return datetime.now(UTC) - run.state.timestamp > timedelta(seconds=BEGIN_SECONDS)
