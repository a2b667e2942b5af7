"""Submissions whose process was lost, with its worker or its machine, are walked on by whichever worker takes them next.

The invariant: a lost submission is asked for once for each time that it was lost, however many workers look; and only as
often as a run may be.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from httpx import HTTPError
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterName
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import PrefectException

from knockout.errors import ServiceError, WorkspaceError
from knockout.ledger.lost import lost_submissions
from knockout.ledger.process import tells_leaving
from knockout.ledger.store import Ledger, Submission
from knockout.ledger.workspace import Workspace, open_workspace
from knockout.submission.requests import pool_of_lost
from pools.addresses import full_name, workspace_address
from reconciling import reconcile
from schedules.lost_sweeps import close_lost
from workers.lost_requests import ask_for_unbegun

TEND_SECONDS = 15.0
WALKS = 3
"""So often a submission is walked, when its process is lost each time; one that leaves it to others does not count."""

log = logging.getLogger(__name__)


def tend(*, pool: str) -> None:
    """Set right what dead processes left, in the ledger of this worker's workspace and in Prefect, and have lost
    submissions of its pool walked on.
    """
    try:
        workspace = open_workspace()
        ledger = Ledger(workspace)
        try:
            ledger.reconcile()
            lost = [one for one in lost_submissions(ledger) if pool_of_lost(one, ledger=ledger) == pool]
            reconcile(ledger)
            close_lost(ledger)
            ask_for_unbegun(ledger, pool=pool)
        finally:
            ledger.close()
        if lost:
            with get_client(sync_client=True) as client:
                for one in lost:
                    _ask_again(client, one, pool=pool, workspace=workspace)
    except (HTTPError, PrefectException, ServiceError, WorkspaceError) as error:
        log.warning("%s: %s; looked at again in %g s", type(error).__name__, error, TEND_SECONDS)


def given_up(submissions: Collection[str]) -> frozenset[str]:
    """Those of some lost submissions that were walked as often as they may be: nobody goes on with them.

    Raises:
        ServiceError: Prefect's server does not answer.
    """
    try:
        with get_client(sync_client=True) as client:
            return frozenset(name for name in submissions if len(_walks(client, name)) >= WALKS)
    except (HTTPError, PrefectException) as error:
        raise ServiceError(f"Prefect's server does not answer ({type(error).__name__})") from None


def _walks(client: SyncPrefectClient, submission: str) -> list[FlowRun]:
    """The flow runs of a submission that count."""
    found = client.read_flow_runs(flow_run_filter=FlowRunFilter(name=FlowRunFilterName(any_=[submission])))
    return [run for run in found if not (run.state and tells_leaving(run.state.message))]


def _ask_again(client: SyncPrefectClient, one: Submission, *, pool: str, workspace: Workspace) -> None:
    if len(_walks(client, one.submission)) >= WALKS:
        return
    deployment = client.read_deployment_by_name(full_name("study", pool=pool))
    client.create_flow_run_from_deployment(
        deployment.id,
        name=one.submission,
        parameters={"workspace": workspace_address(workspace), "submission": one.submission},
        idempotency_key=f"{one.submission}:{one.finished}",
    )
