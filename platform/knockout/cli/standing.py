"""What `knockout status` shows: of everything, or of one submission."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text

from knockout import services
from knockout.cli.flows import PATIENT, load_flow
from knockout.cli.loading import study_name
from knockout.cli.prefect_server import answering_prefect
from knockout.cli.stopping import check_known
from knockout.errors import InputError
from knockout.ledger.store import Ledger
from knockout.submission.requests import has_request, waiting_requests
from knockout.submission.tables import queue_table, run_table, service_table, submission_table
from knockout.submission.watching import SubmissionState, runs, submissions

NEWEST = 10
WAITS = "submitted"
"""The state of what lies in the workspace and no process has begun."""


@dataclass(frozen=True)
class Shown:
    """Plain data, and the same for people."""

    data: dict[str, Any]
    tables: Sequence[RenderableType]

    def show(self) -> None:
        """Print the tables."""
        console = Console()
        for table in self.tables:
            console.print(table, soft_wrap=isinstance(table, Text))  # an address stays whole


def overview(ledger: Ledger) -> Shown:
    """Services, queues, and the newest submissions."""
    services.apply_quiet_environment(ledger.workspace.folder)
    servers, newest = services.status(ledger.workspace.folder), [*_waiting(ledger), *submissions(ledger, limit=NEWEST)]
    queues = _queues(next((one.url for one in servers if one.name == "prefect" and one.healthy), None))
    tables = [service_table(servers), *([queue_table(queues)] if queues else [])]
    data = {
        "services": [asdict(server) for server in servers],
        "queues": [asdict(queue) for queue in queues],
        "submissions": [asdict(item) for item in newest],
    }
    return Shown(data, [*tables, *([submission_table(newest)] if newest else [])])


def standing(ledger: Ledger, *, name: str) -> Shown:
    """The newest submission of a study, or the named one, run by run.

    Raises:
        InputError: there is no such study or submission, or nothing of it was ever begun.
    """
    wanted, known = study_name(name), ledger.submissions()
    waiting = [item for item in _waiting(ledger) if wanted in (item.study, item.submission)]
    of = waiting or [item for item in submissions(ledger, limit=len(known)) if wanted in (item.study, item.submission)]
    if not of:
        check_known(wanted, submissions=known)
        raise InputError(f"nothing of '{wanted}' was ever submitted to {ledger.workspace.folder}")
    found = runs(ledger, submission=of[0].submission)
    address = _address(ledger, submission=of[0].submission)
    data = {**asdict(of[0]), "address": address, "of": [asdict(run) for run in found]}
    page = [Text(f"address  {address}\n")] if address is not None else []
    return Shown(data, [submission_table(of[:1]), *page, *([run_table(found)] if found else [])])


def _address(ledger: Ledger, *, submission: str) -> str | None:
    """Where Prefect shows a submission that was handed to a pool; None where no server is at hand that knows it."""
    if not has_request(submission, workspace=ledger.workspace):
        return None
    server = answering_prefect(ledger.workspace)
    found = load_flow("submitting", server=server, retries=PATIENT).flow_state(submission) if server is not None else None
    return found.address if found is not None else None


def _queues(server: str | None) -> list[Any]:
    """What the queues of a server hold; nothing where none runs."""
    return [] if server is None else load_flow("overview", server=server, retries=PATIENT).queues(now=datetime.now(UTC))


def _waiting(ledger: Ledger) -> list[SubmissionState]:
    """What was handed to a pool, and no worker has begun."""
    known = frozenset(item.submission for item in ledger.submissions())
    return [
        SubmissionState(request.submission, request.study_name, WAITS, f"on pool {request.pool}", request.handed, 0, 0)
        for request in reversed(waiting_requests(ledger, known=known))
    ]
