"""A sweep as a flow run, and the one turn of a schedule.

The invariant: a due time of a schedule is taken once in the ledger. Of flow runs that are late, one stands for all of them;
one that is repeated, or comes while a sweep still runs, does nothing.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from prefect.client.schemas.objects import State
from prefect.exceptions import TerminationSignal
from prefect.runtime import flow_run
from prefect.states import Cancelled, Completed, Failed

from bringing import interrupted
from knockout.cli.ending import stopping
from knockout.cli.night import Order, scheduled, spend
from knockout.errors import KnockoutError, WorkspaceError
from knockout.ledger.process import this_process
from knockout.ledger.stops import BY_COMMAND
from knockout.ledger.store import Ledger
from knockout.ledger.ticks import end_requested, end_tick, take_tick
from knockout.ledger.workspace import Workspace
from knockout.submission.schedules import find_schedule
from pools.addresses import enter
from reconciling import state_of
from run_log import run_log
from schedules.lost_sweeps import ask_again
from schedules.scheduling import last_due

POLL_SECONDS = 1.0
STATES = {"Completed": "done", "Cancelled": "cancelled"}
"""What a schedule's turn came to, in the ledger's words; else it failed."""

log = logging.getLogger(__name__)


def sweep(order: Order, *, workspace: Workspace) -> State[Any]:
    """Make a sweep; Failed when a claim flipped, or something came to no verdicts; Crashed when its worker was stopped."""
    try:
        with stopping():
            night = spend(order, workspace=workspace)
    except (KeyboardInterrupt, TerminationSignal):
        ending = interrupted()
        return state_of(ending.state, reason=ending.reason)
    lines = run_log()
    for change in night.sweep.changes:
        lines.info("%s: %s: %s", change.kind, change.study, change.sentence)
    for missed in night.sweep.missed:
        lines.info("without verdicts: %s", missed)
    said = f"{night.sweep.outcome}: {night.page}"
    lines.info("%s", said)
    return Failed(message=said) if night.sweep.failed else Completed(message=said)


def scheduled_sweep(schedule: str, *, workspace: Workspace) -> State[Any]:
    """The turn of a schedule: its newest due time, unless that was taken or a sweep of it still runs."""
    known = find_schedule(schedule, workspace=workspace)
    due = last_due(known.schedule, scheduled=_scheduled_for(), now=datetime.now(UTC)).timestamp()
    ledger = Ledger(workspace)
    try:
        if (why := take_tick(ledger, schedule=schedule, due=due, owner=this_process())) is not None:
            return Cancelled(message=why)
        try:
            enter(known.project)
            with _heeding(ledger, schedule=schedule, due=due):
                ended = sweep(scheduled(schedule, workspace=workspace), workspace=workspace)
            if ended.is_crashed() and end_requested(ledger, schedule=schedule, due=due):
                ended = Cancelled(message=BY_COMMAND.reason)
            elif ended.is_crashed():
                ask_again(UUID(flow_run.id))
        except KnockoutError as error:
            ended = Failed(message=str(error))
        except BaseException as error:
            end_tick(ledger, schedule=schedule, due=due, state="failed", reason=f"{type(error).__name__}: {error}")
            raise
        end_tick(ledger, schedule=schedule, due=due, state=STATES.get(str(ended.name), "failed"), reason=ended.message)
        return ended
    finally:
        ledger.close()


@contextmanager
def _heeding(ledger: Ledger, *, schedule: str, due: float) -> Iterator[None]:
    """While entered, a request to stop the sweep reaches this process as SIGTERM would."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(POLL_SECONDS):
            try:
                if end_requested(ledger, schedule=schedule, due=due):
                    os.kill(os.getpid(), signal.SIGTERM)
                    return
            except WorkspaceError as error:
                log.warning("%s; looked at again in %g s", error, POLL_SECONDS)

    thread = threading.Thread(target=look, name="heeding", daemon=True)
    with stopping():
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def _scheduled_for() -> datetime:
    """When this flow run was due."""
    return flow_run.get_scheduled_start_time()
