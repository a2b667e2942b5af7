"""What `knockout status` shows: of everything, or of one submission."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from knockout.errors import InputError, quoted
from knockout.ledger.stops import BY_COMMAND
from knockout.ledger.store import Ledger
from knockout.submission.requests import has_request, waiting_requests, withdrawn_requests
from knockout.submission.tables import queue_table, run_table, service_table, submission_table
from knockout.submission.watching import WAITING, SubmissionState, lost_to_pools, runs, submissions

NEWEST = 10
WAITS = "submitted"
"""The state of what lies in the workspace and no process has begun."""
OPEN = (WAITS, WAITING, "running")
"""States of what goes on."""


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
    servers = services.status(ledger.workspace.folder)
    server = next((one.url for one in servers if one.name == "prefect" and one.healthy), None)
    begun = submissions(ledger, limit=NEWEST, lost=_lost(ledger, server=server))
    waiting, called_off = _unbegun(ledger)
    newest = [*waiting, *sorted([*begun, *called_off], key=_time, reverse=True)[:NEWEST]]
    queues = _queues(server)
    tables = [service_table(servers), *([queue_table(queues)] if queues else [])]
    data = {
        "services": [asdict(server) for server in servers],
        "queues": [asdict(queue) for queue in queues],
        "submissions": [asdict(item) for item in newest],
    }
    return Shown(data, [*tables, *([submission_table(newest)] if newest else [])])


def standing(ledger: Ledger, *, name: str) -> Shown:
    """The submissions of a study that run or wait, newest first, or else its newest, or the named one; each run by run.

    The data are those of the first, and the others' under `others`.

    Raises:
        InputError: there is no such study or submission, or nothing of it was ever begun.
    """
    wanted, server = study_name(name), answering_prefect(ledger.workspace)
    waiting, called_off = _unbegun(ledger)
    unbegun = [item for item in (*waiting, *called_off) if wanted in (item.study, item.submission)]
    of = [*unbegun, *submissions(ledger, of=wanted, lost=_lost(ledger, server=server))]
    if not of:
        check_known(wanted, submissions=ledger.submissions())
        raise InputError(f"nothing of {quoted(wanted)} was ever submitted to {ledger.workspace.folder}")
    of.sort(key=_time, reverse=True)
    shown = [_page(item, ledger=ledger, server=server) for item in [item for item in of if item.state in OPEN] or of[:1]]
    first, *others = (page.data for page in shown)
    return Shown({**first, "others": others}, [table for page in shown for table in page.tables])


def _page(item: SubmissionState, *, ledger: Ledger, server: str | None) -> Shown:
    """One submission, run by run."""
    found, address = runs(ledger, of=item), _address(ledger, submission=item.submission, server=server)
    page = [Text(f"address  {address}\n")] if address is not None else []
    tables = [submission_table([item]), *page, *([run_table(found)] if found else [])]
    return Shown({**asdict(item), "address": address, "of": [asdict(run) for run in found]}, tables)


def _address(ledger: Ledger, *, submission: str, server: str | None) -> str | None:
    """Where Prefect shows a submission that was handed to a pool; None where no server is at hand that knows it."""
    if server is None or not has_request(submission, workspace=ledger.workspace):
        return None
    found = load_flow("pools.submitting", server=server, retries=PATIENT).flow_state(submission)
    return found.address if found is not None else None


def _lost(ledger: Ledger, *, server: str | None) -> Mapping[str, str]:
    """The pools of lost submissions that somebody goes on with, as far as it is known."""
    lost = lost_to_pools(ledger)
    if server is None or not lost:
        return lost
    over = load_flow("workers.tending", server=server, retries=PATIENT).given_up(lost)
    return {name: pool for name, pool in lost.items() if name not in over}


def _queues(server: str | None) -> list[Any]:
    """What the queues of a server hold; nothing where none runs."""
    if server is None:
        return []
    return load_flow("pools.overview", server=server, retries=PATIENT).queues(now=datetime.now(UTC))


def _unbegun(ledger: Ledger) -> tuple[list[SubmissionState], list[SubmissionState]]:
    """What was handed to a pool, and no worker has begun: what waits, newest first, and what `stop` took back."""
    known = frozenset(item.submission for item in ledger.submissions())
    waiting = [
        SubmissionState(one.submission, one.study_name, WAITS, f"on pool {one.pool}", one.handed, 0, 0)
        for one in reversed(waiting_requests(ledger, known=known))
    ]
    called_off = [
        SubmissionState(one.submission, one.study_name, BY_COMMAND.state, BY_COMMAND.reason, one.handed, 0, 0)
        for one in withdrawn_requests(ledger, known=known)
    ]
    return waiting, called_off


def _time(item: SubmissionState) -> tuple[float, str]:
    return item.created, item.submission
