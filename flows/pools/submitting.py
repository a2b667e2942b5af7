"""Handing a study to a pool: one flow run of the deployment `study`, whose parameters are an address.

The invariant: what is to be done lies in the workspace before Prefect is told of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from httpx import HTTPError, HTTPStatusError
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterName
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import PrefectException
from prefect.settings import get_current_settings
from prefect.states import Cancelled

from knockout.errors import ServiceError
from knockout.ledger.store import Ledger
from knockout.ledger.workspace import Workspace
from knockout.submission.requests import Request, withdraw, write_request
from pools.addresses import full_name, workspace_address
from pools.deploying import deploy
from pools.inventory import count_online
from reconciling import OPEN


@dataclass(frozen=True)
class Handed:
    """A submission that a pool has."""

    address: str
    """Of its flow run, in Prefect's UI."""
    workers: int
    """Workers of the pool that are online."""


@dataclass(frozen=True)
class FlowState:
    """How a submission's flow run stands."""

    name: str
    """Scheduled, Late, Pending, Running, …"""
    address: str
    """Of the flow run, in Prefect's UI."""
    message: str | None
    final: bool
    lost: bool
    """Whether its process died, or did not start: another may be asked for."""


def submit(request: Request, *, workspace: Workspace) -> Handed:
    """Lay a request in the workspace, and have its pool take it; returns at once.

    Raises:
        ServiceError: Prefect's server does not answer.
        WorkspaceError: the workspace cannot be written.
    """
    deploy(pool=request.pool)
    return hand(request, workspace=workspace)


def hand(request: Request, *, workspace: Workspace) -> Handed:
    """The same for a pool that has its deployments."""
    write_request(request, workspace=workspace)
    try:
        with get_client(sync_client=True) as client:
            deployment = client.read_deployment_by_name(full_name("study", pool=request.pool))
            run = client.create_flow_run_from_deployment(
                deployment.id,
                name=request.submission,
                parameters={"workspace": workspace_address(workspace), "submission": request.submission},
                idempotency_key=request.submission,
            )
            workers = count_online(client, pool=request.pool)
    except (HTTPError, PrefectException) as error:
        _take_back(request, workspace=workspace)
        raise ServiceError(f"Prefect's server did not take the submission: {_said(error)}") from None
    return Handed(_page(run), workers)


def _take_back(request: Request, *, workspace: Workspace) -> None:
    """What was refused waits for nobody, also where the server took it and its answer was lost."""
    ledger = Ledger(workspace)
    withdraw(request.submission, ledger=ledger)
    ledger.close()


def _said(error: Exception) -> str:
    """What the server said, where it did."""
    if isinstance(error, HTTPStatusError) and error.response.headers.get("content-type") == "application/json":
        return str(error.response.json().get("detail", error))
    return f"{type(error).__name__}: {error}"


def flow_state(submission: str) -> FlowState | None:
    """How the newest flow run of a submission stands, or None where Prefect knows none. Raises ServiceError."""
    try:
        with get_client(sync_client=True) as client:
            run = _newest(client, name=submission)
    except (HTTPError, PrefectException) as error:
        raise ServiceError(f"Prefect's server does not answer ({type(error).__name__})") from None
    if run is None or run.state is None:
        return None
    return FlowState(str(run.state.name), _page(run), run.state.message, run.state.is_final(), run.state.is_crashed())


def call_off(submission: str, *, reason: str) -> None:
    """End the flow run of a submission that no process has begun. Raises ServiceError."""
    try:
        with get_client(sync_client=True) as client:
            run = _newest(client, name=submission)
            if run is not None and run.state is not None and run.state.type not in OPEN[1:] and not run.state.is_final():
                client.set_flow_run_state(run.id, Cancelled(message=reason), force=True)
    except (HTTPError, PrefectException) as error:
        raise ServiceError(f"Prefect's server does not answer ({type(error).__name__})") from None


def _newest(client: SyncPrefectClient, *, name: str) -> FlowRun | None:
    found = client.read_flow_runs(flow_run_filter=FlowRunFilter(name=FlowRunFilterName(any_=[name])), limit=1)
    return found[0] if found else None


def _page(run: FlowRun) -> str:
    """The address of a flow run, for people."""
    server = str(get_current_settings().api.url).removesuffix("/").removesuffix("/api")
    return f"{server}/runs/flow-run/{run.id}"
