"""The flow of one run, which a worker runs in a process of its own.

The invariant: importing it starts no thread, so that a process that has it can be forked.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from httpx import HTTPError
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.exceptions import PrefectException, TerminationSignal
from prefect.runtime import flow_run

from knockout.declare.parallelism import Strategy
from knockout.ledger.process import this_process
from knockout.ledger.workspace import Workspace, open_workspace
from knockout.submission.single import Ended, Order, bring
from knockout.submission.waiting import wait_awake
from knockout.training.launcher import Nursery
from knockout.training.stop import BY_USER, Ending, Stop, handed_on
from reconciling import state_of

Made = TypeVar("Made")


@flow(name="training", persist_result=False)
def training(
    submission: str,
    run: str,
    workspace: str | None = None,
    run_seconds: float | None = None,
    devices: int = 1,
    strategy: Strategy = "ddp",
) -> State[Any]:
    """Bring one run to its sealed result, once, whoever else asks for it."""
    order = Order(submission, run, run_seconds, devices, strategy)
    return bring_here(order, workspace=workspace, nursery=Nursery)


def bring_here(order: Order, *, workspace: str | None, nursery: type[Nursery]) -> State[Any]:
    """Bring a run to its end on this machine, in the workspace that is named or else its own; the flow run's state."""
    stop = Stop()
    work = partial(bring, order, workspace=workspace_at(workspace), stop=stop, nursery=nursery)
    ended: Ended = _awake(work, stop=stop)
    return state_of(ended.state, reason=ended.reason)


def workspace_at(folder: str | None) -> Workspace:
    """The workspace that a submission names, or else this worker's own."""
    return open_workspace(Path(folder) if folder is not None else None)


def interrupted() -> Ending:
    """What a signal asks for: the flow run was cancelled in Prefect, or else this process is to end, and others go on."""
    try:
        with get_client(sync_client=True) as client:
            state = client.read_flow_run(UUID(flow_run.id)).state
    except (HTTPError, PrefectException):
        return handed_on(this_process())
    called_off = state is not None and (state.is_cancelling() or state.is_cancelled())
    return BY_USER if called_off else handed_on(this_process())


def _awake(work: Callable[[], Made], *, stop: Stop) -> Made:
    """Do the work in a thread, so that a signal is heard; it asks the work to stop, and waits for it."""
    with ThreadPoolExecutor(1) as pool:
        future: Future[Made] = pool.submit(work)
        try:
            wait_awake([future])
        except (KeyboardInterrupt, TerminationSignal):
            stop.end(interrupted())
        return future.result()
