"""Submissions whose process was lost, with its worker or its machine, are walked on by whichever worker takes them next.

The invariant: a lost submission is asked for once for each time that it was lost, however many workers look; and only as
often as a run may be.
"""

from __future__ import annotations

import logging

from addresses import full_name, workspace_address
from httpx import HTTPError
from lost_requests import ask_for_unbegun
from lost_sweeps import close_lost
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterName
from prefect.exceptions import PrefectException
from reconciling import reconcile

from knockout.errors import ServiceError, WorkspaceError
from knockout.ledger.lost import lost_submissions
from knockout.ledger.process import tells_leaving
from knockout.ledger.stops import wanted_stop
from knockout.ledger.store import Ledger, Submission
from knockout.ledger.workspace import Workspace, open_workspace
from knockout.submission.requests import has_request, read_request

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
            lost = [one for one in lost_submissions(ledger) if _is_wanted(one, ledger=ledger, pool=pool)]
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


def _is_wanted(one: Submission, *, ledger: Ledger, pool: str) -> bool:
    """Whether a submission was handed to this pool, and nobody stopped it; one whose time is over has yet to conclude."""
    wanted = wanted_stop(ledger, submission=one.submission)
    if (wanted is not None and wanted.state != "timed-out") or not has_request(one.submission, workspace=ledger.workspace):
        return False
    return read_request(one.submission, workspace=ledger.workspace).pool == pool


def _ask_again(client: SyncPrefectClient, one: Submission, *, pool: str, workspace: Workspace) -> None:
    named = FlowRunFilter(name=FlowRunFilterName(any_=[one.submission]))
    walks = [
        run for run in client.read_flow_runs(flow_run_filter=named) if not (run.state and tells_leaving(run.state.message))
    ]
    if len(walks) >= WALKS:
        return
    deployment = client.read_deployment_by_name(full_name("study", pool=pool))
    client.create_flow_run_from_deployment(
        deployment.id,
        name=one.submission,
        parameters={"workspace": workspace_address(workspace), "submission": one.submission},
        idempotency_key=f"{one.submission}:{one.finished}",
    )
