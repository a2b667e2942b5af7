"""A sweep as a flow run: the command `knockout nightly` in a process of its own, and the one turn of a schedule.

The invariant: a due time of a schedule is taken once in the ledger. Of flow runs that are late, one stands for all of them;
one that is repeated, or comes while a sweep still runs, does nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Cancelled, Completed, Failed
from scheduling import last_due

from knockout.cli.unattended import run_command
from knockout.ledger.process import this_process
from knockout.ledger.store import Ledger
from knockout.ledger.ticks import end_tick, take_tick
from knockout.ledger.workspace import Workspace
from knockout.submission.schedules import find_schedule


def sweep(arguments: Sequence[str]) -> State[Any]:
    """Run a sweep to its end; Failed when a claim flipped, or something came to no verdicts."""
    code = run_command(arguments, silent=False)
    return Completed() if code == 0 else Failed(message="a claim flipped, or a study came to no verdicts: see its page")


def scheduled_sweep(schedule: str, *, workspace: Workspace) -> State[Any]:
    """The turn of a schedule: its newest due time, unless that was taken or a sweep of it still runs."""
    known = find_schedule(schedule, workspace=workspace)
    due = last_due(known.schedule, scheduled=_scheduled_for(), now=datetime.now(UTC)).timestamp()
    ledger = Ledger(workspace)
    try:
        if (why := take_tick(ledger, schedule=schedule, due=due, owner=this_process())) is not None:
            return Cancelled(message=why)
        os.chdir(known.project)
        try:
            ended = sweep(["nightly", "--schedule", schedule, "--workspace", str(workspace.folder)])
        except BaseException as error:
            end_tick(ledger, schedule=schedule, due=due, state="failed", reason=f"it was stopped: {type(error).__name__}")
            raise
        state = "done" if ended.is_completed() else "failed"
        end_tick(ledger, schedule=schedule, due=due, state=state, reason=ended.message)
        return ended
    finally:
        ledger.close()


def _scheduled_for() -> datetime:
    """When this flow run was due."""
    return flow_run.get_scheduled_start_time()
