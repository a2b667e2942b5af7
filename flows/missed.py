"""Submissions that ended while Prefect was out of reach, or that its database lost, told to it afterwards.

The invariant: only what the ledger does not know to be there is looked at, and each is told once: a request that comes
twice, or two commands at the same moment, make one flow run.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterName
from prefect.client.schemas.objects import FlowRun

from knockout.ledger.flow_runs import note_flow_run
from knockout.ledger.store import Ledger, Submission
from states import FLOW, state_of


def database_mark(client: SyncPrefectClient) -> str:
    """What tells Prefect's database from one that took its place: the id that it gave the flow of studies."""
    return str(client.create_flow_from_name(FLOW))


def named(client: SyncPrefectClient, name: str) -> list[FlowRun]:
    """The flow runs of this name."""
    return client.read_flow_runs(flow_run_filter=FlowRunFilter(name=FlowRunFilterName(any_=[name])))


def tell(client: SyncPrefectClient, owed: Iterable[Submission], *, ledger: Ledger, database: str) -> list[str]:
    """See to it that Prefect has a flow run of each of these submissions, which have ended; the names of those it lacked."""
    lacking = []
    for one in owed:
        if not named(client, one.submission):
            _tell(client, one, database=database)
            lacking.append(one.submission)
        note_flow_run(ledger, one.submission, database=database)
    return lacking


def _tell(client: SyncPrefectClient, one: Submission, *, database: str) -> None:
    """Make a flow run with the submission's name, and end it as the submission did.

    It is expected at the submission's beginning, and sorted by that. Prefect takes the time at which it is told for that of
    the end, whatever it is told, so both times are parameters too.
    """
    began = _time(one.created)
    flow_run = {
        "flow_id": database,
        "name": one.submission,
        "parameters": {
            "study": one.study,
            "submission": one.submission,
            "began": began,
            "ended": _time(one.finished or one.created),
        },
        "state": {"type": "SCHEDULED", "state_details": {"scheduled_time": began}},
        "idempotency_key": f"{one.submission}:told afterwards",
    }
    made = FlowRun.model_validate(client.request("POST", "/flow_runs/", json=flow_run).json())
    client.set_flow_run_state(made.id, state_of(one.state, reason=one.reason), force=True)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).isoformat(timespec="seconds")
