"""One run of a submission that another process, perhaps another machine's, walks: what a worker of a pool does.

The invariant: the run is trained under a lease of the ledger, so it is trained once whoever else was told to train it;
and it ends when its submission does.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from knockout.declare.parallelism import Strategy
from knockout.errors import RunError, WorkspaceError
from knockout.ledger.lost import goes_on
from knockout.ledger.process import this_process
from knockout.ledger.stops import stop_requested, wanted_stop
from knockout.ledger.store import Ledger
from knockout.ledger.workspace import Workspace
from knockout.services.environment import quiet_environment
from knockout.submission.shared_corpora import shared_by_digest
from knockout.submission.slots import Slot, host_slot
from knockout.training.execute import Limits, execute
from knockout.training.folder import lay_out
from knockout.training.launcher import Nursery
from knockout.training.spec import Runtime
from knockout.training.stop import Ending, Stop

HEED_SECONDS = 1.0
BEHIND = "it fell behind the other trials of its search"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Order:
    """One run to bring to its end, for a submission."""

    submission: str
    run: str
    """Its identity; what it means lies in the workspace."""
    run_seconds: float | None = None
    """Longest time that it may take."""
    devices: int = 1
    """Devices that it takes."""
    strategy: Strategy = "ddp"
    """What they share."""

    @property
    def pruned(self) -> str:
        """The name under which the ledger is told that the search needs the run no more."""
        return f"{self.submission}:{self.run}"


@dataclass(frozen=True)
class Ended:
    """How a run stands once nobody here works on it."""

    state: str
    reason: str | None


def bring(order: Order, *, workspace: Workspace, stop: Stop, nursery: type[Nursery] = Nursery) -> Ended:
    """Bring a run to its end here: reuse its result, train it below a nursery, or wait for whoever is training it.

    Raises:
        RunError: the ledger does not know the run, or the training processes' parent did not start.
        CorpusError: the corpus that it reads is not in the workspace.
    """
    ledger = Ledger(workspace)
    try:
        ledger.reconcile()
        run = ledger.run(order.run)
        if run is None:
            raise RunError(f"run {order.run} is not in the ledger of {workspace.folder}")
        if not goes_on(ledger.submission(order.submission)):
            return Ended(run.state, run.reason) if run.finished else Ended("cancelled", has_ended(order.submission))
        corpus = shared_by_digest(run.meaning["corpus"], workspace=workspace).folder
        lay_out(workspace, run.identity, meaning=run.meaning)
        return _execute(order, corpus=str(corpus), ledger=ledger, stop=stop, kind=nursery)
    finally:
        ledger.close()


def _execute(order: Order, *, corpus: str, ledger: Ledger, stop: Stop, kind: type[Nursery]) -> Ended:
    folder = ledger.workspace.folder
    nursery = kind(quiet_environment(folder), log=folder / "nursery.log")
    try:
        with _heeding(order, ledger=ledger, stop=stop) as pruned, _slot(order, nursery=nursery) as slot:
            execution = execute(
                order.run,
                ledger=ledger,
                owner=this_process(),
                nursery=nursery,
                limits=Limits(run_seconds=order.run_seconds, stop=stop),
                early=lambda: BEHIND if pruned.is_set() else None,
                say=log.warning,
                runtime=Runtime(corpus=corpus, device=slot.device, devices=order.devices, strategy=order.strategy),
                environment=slot.environment,
            )
    finally:
        nursery.close()
    if execution.run.finished or not stop.is_set():
        return Ended(execution.run.state, execution.run.reason)
    return Ended(stop.ending.state, stop.ending.reason)


def _slot(order: Order, *, nursery: Nursery) -> AbstractContextManager[Slot]:
    return host_slot(num_gpus=nursery.num_gpus(), devices=order.devices)


@contextmanager
def _heeding(order: Order, *, ledger: Ledger, stop: Stop) -> Iterator[threading.Event]:
    """While entered, what the submission wants is heeded; the event tells that its search needs the run no more."""
    over, pruned = threading.Event(), threading.Event()

    def heed() -> None:
        while not over.wait(HEED_SECONDS):
            try:
                _heed(order, ledger=ledger, stop=stop, pruned=pruned)
            except WorkspaceError as unreachable:
                log.debug("%s; it is asked again", unreachable)

    thread = threading.Thread(target=heed, name="heed", daemon=True)
    thread.start()
    try:
        yield pruned
    finally:
        over.set()
        thread.join()


def _heed(order: Order, *, ledger: Ledger, stop: Stop, pruned: threading.Event) -> None:
    if (wanted := wanted_stop(ledger, submission=order.submission)) is not None:
        stop.end(Ending(wanted.state, wanted.reason))
    elif not goes_on(ledger.submission(order.submission)):
        stop.end(Ending("cancelled", has_ended(order.submission)))
    elif stop_requested(ledger, submission=order.pruned):
        pruned.set()


def has_ended(submission: str) -> str:
    """Why a run of a submission that is over is not trained."""
    return f"its submission {submission} has ended"
