"""Setting right what dead processes left in Prefect: flow runs and task runs that will never tell how they ended.

The invariant: the ledger is the truth. A flow run is named after its submission, and gets the state that the ledger has for
it; it is Completed only when every run that it owed has a result. To do it again changes nothing.
"""

from __future__ import annotations

import time
from typing import Any

from httpx import HTTPError
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterState,
    FlowRunFilterStateType,
    TaskRunFilter,
    TaskRunFilterFlowRunId,
    TaskRunFilterState,
    TaskRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, State, StateType, TaskRun
from prefect.exceptions import PrefectException

from knockout.errors import ServiceError
from knockout.ledger.flow_runs import owed_flow_runs
from knockout.ledger.lost import FORGOTTEN, goes_on
from knockout.ledger.process import tells_death, this_process
from knockout.ledger.store import FINISHED, HELD, PRUNED, Ledger, LedgerRun, Submission
from knockout.submission.requests import has_request
from missed import database_mark, named, tell
from states import FLOW, TRAINING, state_of, workspace_tag

OPEN = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]
"""States of what has begun, and has not ended."""
UNENDED = [*OPEN, StateType.SCHEDULED]
ENDED = (*FINISHED, PRUNED, "failed", "cancelled", "timed-out")
"""States of a run that a task of its own can have come to."""
SETTLE_SECONDS = 15.0
"""A process that ends by itself tells Prefect within this time after the ledger."""
BEGIN_SECONDS = 120.0
"""Within so long a submission that has a flow run is in the ledger, also on a machine that has much to do."""
PAGE = 200


def reconcile(ledger: Ledger) -> list[str]:
    """Set right every flow run of a submission that has ended, and every task run of it; and tell of submissions that ended
    while Prefect was out of reach, or that its database has lost.

    Returns:
        The submissions whose flow runs were changed or made. Where nothing is open or owed, three requests are made.

    Raises:
        ServiceError: Prefect's server does not answer.
    """
    try:
        with get_client(sync_client=True) as client:
            closed = _close_ended(client, ledger=ledger)
            database = database_mark(client)
            owed = [one for one in owed_flow_runs(ledger, database=database) if _has_ended(one, ledger=ledger)]
            told = tell(client, owed, ledger=ledger, database=database)
    except (HTTPError, PrefectException) as error:
        raise ServiceError(f"Prefect's server does not answer ({type(error).__name__})") from None
    return list(dict.fromkeys((*closed, *told)))


def _close_ended(client: SyncPrefectClient, *, ledger: Ledger) -> list[str]:
    """Close what is open of submissions that have ended; their names."""
    found = _unsettled(client)
    known = {name: ledger.submission(name) for name in {_submission_of(run) for run in found}}
    ended = [
        (run, of) for run in found if (of := known.get(_submission_of(run))) is not None and _has_ended(of, ledger=ledger)
    ]
    ended = [(run, of) for run, of in ended if not _takes_over(run, submission=of)]
    for run, submission in ended:
        _close_one(client, run=run, submission=submission, ledger=ledger)
    forgotten = [run for run in found if known[_submission_of(run)] is None and _is_forgotten(run, ledger=ledger)]
    for run in forgotten:
        _set(client, run=run, state=state_of("failed", reason=FORGOTTEN))
    return [*(submission.submission for _, submission in ended), *map(_submission_of, forgotten)]


def _is_forgotten(run: FlowRun, *, ledger: Ledger) -> bool:
    """Whether a flow run that the ledger does not know is this workspace's, and not one that just begins."""
    begun = run.created is not None and time.time() - run.created.timestamp() > BEGIN_SECONDS
    return begun and workspace_tag(ledger.workspace.folder) in run.tags


def _set(client: SyncPrefectClient, *, run: FlowRun, state: State[Any]) -> None:
    """Give a flow run, and its tasks that are open, a state, the tasks first."""
    for task in _open_task_runs(client, flow_run=run):
        client.set_task_run_state(task.id, state, force=True)
    client.set_flow_run_state(run.id, state, force=True)


def confirm(ledger: Ledger, *, submission: str) -> None:
    """See to it that a submission that has ended has one flow run, whose state is the ledger's.

    A request that was lost, or came twice, may have left it open or made a second one.

    Raises:
        ServiceError: Prefect's server does not answer.
    """
    one = ledger.submission(submission)
    assert one is not None
    try:
        with get_client(sync_client=True) as client:
            open_ = [run for run in _unsettled(client) if _submission_of(run) == submission]
            for run in {run.id: run for run in (*open_, *named(client, submission))}.values():
                _close_one(client, run=run, submission=one, ledger=ledger)
            tell(client, [one], ledger=ledger, database=database_mark(client))
    except (HTTPError, PrefectException) as error:
        raise ServiceError(f"Prefect's server does not answer ({type(error).__name__})") from None


def _close_one(client: SyncPrefectClient, *, run: FlowRun, submission: Submission, ledger: Ledger) -> None:
    """Close a flow run; one that never began, beside the one that did, was made by a repeated request, and is removed."""
    twin = run.run_count == 0 and run.name != submission.submission and "run" not in run.parameters
    if twin and named(client, submission.submission):
        client.delete_flow_run(run.id)
    else:
        _close(client, run=run, submission=submission, ledger=ledger)


def _submission_of(run: FlowRun) -> str:
    """The submission that a flow run walks, or trains for."""
    return str(run.parameters.get("submission", run.name))


def _unsettled(client: SyncPrefectClient) -> list[FlowRun]:
    """Flow runs of studies and of their trainings that have not ended in Prefect, or one of whose tasks has not."""
    flow = FlowFilter(name=FlowFilterName(any_=[FLOW, TRAINING]))
    open_ = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=UNENDED)))
    found: list[FlowRun] = []
    while True:
        page = client.read_flow_runs(flow_filter=flow, flow_run_filter=open_, limit=PAGE, offset=len(found))
        found += page
        if len(page) < PAGE:
            break
    open_tasks = TaskRunFilter(state=TaskRunFilterState(type=TaskRunFilterStateType(any_=OPEN)))
    tasks = client.read_task_runs(flow_filter=flow, task_run_filter=open_tasks, limit=PAGE)
    above = {task.flow_run_id for task in tasks if task.flow_run_id is not None} - {run.id for run in found}
    if above:
        found += client.read_flow_runs(flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=list(above))), limit=PAGE)
    return found


def _has_ended(submission: Submission, *, ledger: Ledger) -> bool:
    """Whether nobody is left who will tell Prefect of it; one of a pool may be about to be taken over."""
    if submission.state == "running":
        return False
    if goes_on(submission) and has_request(submission.submission, workspace=ledger.workspace):
        return False
    gone = submission.owner is not None and (submission.owner == this_process() or submission.owner.alive() is False)
    return gone or tells_death(submission.reason) or time.time() - (submission.finished or 0.0) > SETTLE_SECONDS


def _takes_over(run: FlowRun, *, submission: Submission) -> bool:
    """Whether a flow run was asked for after its submission was lost, and has yet to go on with it."""
    return run.created is not None and run.created.timestamp() > (submission.finished or 0.0)


def _close(client: SyncPrefectClient, *, run: FlowRun, submission: Submission, ledger: Ledger) -> None:
    """Give a flow run its state, and those of its tasks that are open theirs, the tasks first.

    A training, and a task that trains, has the state that its run came to within the submission; else the submission's.
    """
    for task in _open_task_runs(client, flow_run=run):
        trained = _run_of(task.name, submission=submission, ledger=ledger)
        of = _ended_within(submission, run=trained) or submission
        client.set_task_run_state(task.id, state_of(of.state, reason=of.reason), force=True)
    trained = ledger.run(str(run.parameters["run"])) if "run" in run.parameters else None
    if trained is not None and trained.state in HELD:
        return  # whoever has it tells how it ends
    of = _ended_within(submission, run=trained) or submission
    wanted, told = state_of(of.state, reason=of.reason), run.state
    if told is None or (told.type, told.name, told.message) != (wanted.type, wanted.name, wanted.message):
        client.set_flow_run_state(run.id, wanted, force=True)


def _ended_within(submission: Submission, *, run: LedgerRun | None) -> LedgerRun | None:
    """The run, where its end is one that the submission saw: no earlier failure, and nothing of a later submission."""
    if run is None or run.ended is None or run.state not in ENDED or run.ended > (submission.finished or 0.0):
        return None
    return run if run.finished or run.ended >= submission.created else None


def _open_task_runs(client: SyncPrefectClient, *, flow_run: FlowRun) -> list[TaskRun]:
    """Task runs of a flow run that have not ended in Prefect."""
    open_ = TaskRunFilter(
        flow_run_id=TaskRunFilterFlowRunId(any_=[flow_run.id]),
        state=TaskRunFilterState(type=TaskRunFilterStateType(any_=OPEN)),
    )
    found: list[TaskRun] = []
    while True:
        page = client.read_task_runs(task_run_filter=open_, limit=PAGE, offset=len(found))
        found += page
        if len(page) < PAGE:
            return found


def _run_of(name: str, *, submission: Submission, ledger: Ledger) -> LedgerRun | None:
    """The run that a task trains, by the name that people see; None for a task that trains none."""
    for identity, variant, size, seed in ledger.asked(submission.submission):
        if name == f"{variant} · {size} · s{seed}":
            return ledger.run(identity)
    return None
