"""The road of a submission, step by step: prepare, bind, train, judge, report.

The invariant: the ledger alone decides what there is to do. A road that was cut off anywhere is walked again from the
start, and finds what is done.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import uuid
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from knockout.account.matching import plan_study
from knockout.corpus.prepare import Prepared, prepare
from knockout.declare.load import Loaded
from knockout.declare.plan import Cell, Plan
from knockout.errors import RunEnded, RunError, Stopped, WorkspaceError
from knockout.ledger.process import this_process
from knockout.ledger.stops import stop_requested
from knockout.ledger.store import HELD, PRUNED, Ledger
from knockout.ledger.workspace import Workspace
from knockout.services.environment import quiet_environment
from knockout.submission.bind import BoundRun, bind, vocabularies, write_meanings
from knockout.submission.concluding import Concluding, conclude, judge, open_variants
from knockout.submission.listener import Listener
from knockout.submission.mirroring import Mirroring
from knockout.submission.slots import Slot, slot_queue, usable_cores
from knockout.submission.waiting import wait_awake
from knockout.training.execute import DAMAGED, Early, Execution, Limits, execute, never
from knockout.training.launcher import Nursery
from knockout.training.progress import read_progress
from knockout.training.result import read_result
from knockout.training.spec import Runtime
from knockout.training.stop import BY_USER, Ending, Stop

if TYPE_CHECKING:
    from knockout.submission.tuned import Tuned

TICK_SECONDS = 1.0
MAX_GPUS = 16
"""Of one machine."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Options:
    """How a submission is executed; nothing here bears identity."""

    slots: int | None = None
    """Runs at a time; None: one for each core, or for each GPU where there are some."""
    run_seconds: float | None = None
    """Longest time that a run may take; None: what the study declares."""
    study_seconds: float | None = None
    """Longest time that the submission may take; None: what the study declares."""
    mlflow: bool = True
    """Whether runs are mirrored to MLflow."""


class Road:
    """Walks one submission. Enter it as a context: everything that it started ends with it."""

    def __init__(self, loaded: Loaded, *, workspace: Workspace, options: Options, listener: Listener, stop: Stop) -> None:
        self.loaded = loaded
        self.plan: Plan = plan_study(loaded)
        self.workspace = workspace
        self.options = options
        self.listener = listener
        declared = self.plan.study.limits
        self.limits = Limits(run_seconds=options.run_seconds or declared.run_seconds, stop=stop)
        self.study_seconds = options.study_seconds or declared.study_seconds
        self.submission = f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}"
        self.owner = this_process()
        self.started = time.monotonic()
        self.preparing: Future[dict[int, Prepared]] = Future()
        self.prepared: dict[int, Prepared] = {}
        self.runs: list[BoundRun] = []
        self.executions: dict[str, Execution] = {}
        self.active: dict[str, BoundRun] = {}
        self.tuned: dict[tuple[str, str], tuple[Cell, Tuned]] = {}
        self.submitted = False
        self.counting = threading.Lock()
        self.free: queue.Queue[Slot] | None = None
        self.over = threading.Event()

    def __enter__(self) -> Road:
        self.ledger = Ledger(self.workspace)
        dead = self.ledger.reconcile()
        environment = quiet_environment(self.workspace.folder)
        self.nursery = Nursery(environment, log=self.workspace.folder / "nursery.log")
        self.mirroring = Mirroring(self.workspace, enabled=self.options.mlflow, dead=dead)
        self.ticker = threading.Thread(target=self._tick, name="ticker", daemon=True)
        self.ticker.start()
        # Beside the start of servers and training processes; a daemon, since a preparation that is cut off leaves nothing.
        threading.Thread(target=self._prepare, name="corpus", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        ending = self.ending(error) if error is not None else None
        if error is not None:
            self.limits.stop.end(Ending("cancelled", f"its submission ended: {error}"))
        self.over.set()
        self.ticker.join()
        self.nursery.close()
        if ending is not None:
            self.mirroring.give_up(state=ending[0], reason=ending[1])
        if (missed := self.mirroring.close()) is not None:
            self.listener.note(missed)
        if ending is not None and self.submitted:
            self._give_up(state=ending[0], reason=ending[1])
        self.ledger.close()

    def prepare(self) -> None:
        """Wait until the corpus is prepared for each vocabulary, and tell the ledger and the mirror of the submission.

        Raises:
            CorpusError: the text is missing, empty or wrong.
            Stopped, RunError: the submission was asked to stop, or has reached its limit.
        """
        if not self.submitted:
            study = self.plan.study.study
            self.ledger.submit(
                self.submission,
                study=study,
                plan=self.plan.text,
                owner=self.owner,
                runs=[],
                arguments=self.plan.arguments,
                mirrored=self.options.mlflow,
            )
            self.submitted = True
            self.mirroring.open_submission(self.plan, submission=self.submission)
        wait_awake([self.preparing], until=self.limits.stop)
        self.raise_if_stopped()
        if not self.preparing.done():
            self.raise_if_ended()
        self.prepared = self.preparing.result()

    def raise_if_stopped(self) -> None:
        """Raise Stopped where the submission was asked to stop: it comes to no verdicts."""
        stop = self.limits.stop
        if stop.is_set() and stop.ending.state == "cancelled":
            raise Stopped(stop.ending.reason)

    def raise_if_ended(self) -> None:
        """Raise where the submission can go no further: Stopped when it was asked to, RunError at its limit."""
        self.raise_if_stopped()
        if self.limits.stop.is_set():
            raise RunError(f"{self.limits.stop.ending.reason}; the same command goes on from here")

    def ending(self, error: BaseException) -> tuple[str, str]:
        """The state and the reason of the submission when an error, or a signal, ends it."""
        stop = self.limits.stop
        if isinstance(error, Exception) and not (stop.is_set() and isinstance(error, RunError)):
            return "failed", str(error) or type(error).__name__
        ending = stop.ending if stop.is_set() else BY_USER
        return ending.state, ending.reason

    @property
    def to_tune(self) -> tuple[Cell, ...]:
        """The cells whose settings are searched before anything is judged."""
        return self.plan.cells if self.plan.study.tune is not None else ()

    def tune(self, cell: Cell) -> Tuned:
        """Search one cell's settings; the judged runs of the cell are planned with what it comes to.

        Raises:
            RunError: a trial ended without a result, or all diverged.
        """
        from knockout.submission.tuning import tune_cell  # Optuna takes a second to import, and most studies search nothing

        tune = self.plan.study.tune
        assert tune is not None
        tuned_cell, tuned = tune_cell(
            cell,
            tune=tune,
            prepared=self.prepared[cell.architecture.vocabulary],
            workspace=self.workspace,
            stop=self.limits.stop,
            run=self._try,
            known=self.ledger.runs,
        )
        self.tuned[cell.variant, cell.size] = (tuned_cell, tuned)
        self.listener.tuned(tuned)
        return tuned

    def bind(self) -> list[BoundRun]:
        """Give the judged runs their identity, with what was tuned; the different ones among them are to be trained."""
        self.plan = self.plan.with_cells({key: cell for key, (cell, _) in self.tuned.items()})
        self.runs = bind(self.plan, prepared=self.prepared)
        write_meanings(self.runs, workspace=self.workspace)
        self.ledger.ask(self.submission, runs=[run.ask() for run in self.runs])
        different = {run.identity: run for run in reversed(self.runs)}  # of equal runs the first one's name: the baseline's
        ended = self.executions
        done = [identity for identity, run in different.items() if identity in ended or self._has_result(run)]
        num_slots = self.num_slots if len(done) < len(different) else 0
        self.listener.planned(self.plan, self.runs, done, num_slots)
        return [run for run in self.runs if different.get(run.identity) is run and run.identity not in ended]

    def look_again(self) -> bool:
        """Whether a claim is open that a further look may settle; if so, its seeds have joined the plan."""
        looks, look = self.plan.study.looks, self.plan.look + 1
        if not self.loaded.overrides.settle or look == len(looks) or self.limits.stop.is_set():
            return False
        judged = judge(self.plan, runs=self.runs, prepared=self.prepared, ledger=self.ledger)
        variants = open_variants(self.plan.study, judgement=judged)
        if not variants:
            return False
        self.plan = self.plan.at_look(look, variants=variants)
        self.listener.note(f"open at {looks[look - 1]} seeds; going on to {looks[look]} for {', '.join(sorted(variants))}")
        return True

    @property
    def num_slots(self) -> int:
        """Runs that execute at the same time."""
        return self.options.slots or self.nursery.num_gpus() or usable_cores()

    @property
    def num_threads(self) -> int:
        """Threads that suffice to keep every slot busy, known before the devices are counted."""
        return self.options.slots or max(usable_cores(), MAX_GPUS)

    def train(self, run: BoundRun, *, early: Early = never) -> Execution:
        """Bring one run to its end, in a slot of its own, or to where `early` finds a reason to prune it.

        Raises:
            RunEnded: the run has no result.
        """
        slot = self._slots().get()
        if (stop := self.limits.stop).is_set():
            self._slots().put(slot)
            raise RunEnded(run.name, state=stop.ending.state, reason=stop.ending.reason)
        try:
            execution = self._train(run, slot=slot, early=early)
        finally:
            self._slots().put(slot)
        if execution.run.state in HELD:  # another submission goes on with it
            raise RunEnded(run.name, state=stop.ending.state, reason=stop.ending.reason)
        if execution.run.state == "planned":
            execution = replace(execution, run=replace(execution.run, state=stop.ending.state, reason=stop.ending.reason))
        pruned = execution.run.state == PRUNED
        if not pruned:
            self.executions[run.identity] = execution
        self.listener.run_ended(run, execution.run, execution.reused)
        self.mirroring.close_run(run, execution=execution)
        if not (pruned or execution.run.finished):
            raise RunEnded(run.name, state=execution.run.state, reason=execution.run.reason)
        return execution

    def conclude(self) -> Concluding:
        """Judge the study and write its report, from whatever there is.

        Raises:
            Stopped: the submission was asked to stop.
        """
        self.raise_if_stopped()
        stop = self.limits.stop
        concluding = conclude(
            self.plan,
            runs=self.runs,
            prepared=self.prepared,
            ledger=self.ledger,
            seconds=time.monotonic() - self.started,
            reused={identity: execution.reused for identity, execution in self.executions.items()},
            tuned=[self.tuned[key][1] for cell in self.plan.cells if (key := (cell.variant, cell.size)) in self.tuned],
            ending=stop.ending if stop.is_set() else None,
        )
        self.ledger.conclude(self.submission, state=concluding.state, reason=concluding.reason, facts=concluding.facts)
        self.mirroring.close_submission(concluding)
        self.listener.concluded(concluding.facts)
        return concluding

    def _prepare(self) -> None:
        """Prepare the corpus for each vocabulary; `preparing` is what comes of it."""
        try:
            prepared = {
                vocabulary: prepare(
                    self.plan.corpus,
                    vocabulary=vocabulary,
                    folder=self.workspace.corpora,
                    base=self.loaded.corpus_base,
                    progress=self.listener.corpus,
                )
                for vocabulary in vocabularies(self.plan)
            }
        except BaseException as error:
            self.preparing.set_exception(error)
        else:
            self.preparing.set_result(prepared)

    def _try(self, run: BoundRun, early: Early) -> Execution:
        """Bring a trial's run to its result, or to where it is pruned."""
        write_meanings([run], workspace=self.workspace)
        self.ledger.ask(self.submission, runs=[run.ask()])
        return self.train(run, early=early)

    def _has_result(self, run: BoundRun) -> bool:
        """Whether a run is done; one whose files are gone or damaged is not, whatever the ledger says."""
        known = self.ledger.run(run.identity)
        if known is None or not known.finished:
            return False
        if read_result(self.workspace.run(run.identity)) is not None:
            return True
        self.ledger.reopen(run.identity, reason=DAMAGED)
        self.listener.note(f"{run.name}: {DAMAGED}; it is trained again")
        return False

    def _give_up(self, *, state: str, reason: str) -> None:
        """Record why the submission ended early."""
        try:
            self.ledger.conclude(self.submission, state=state, reason=reason, facts=None)
        except WorkspaceError as unwritable:
            log.debug("%s; the next command's reconciling records it", unwritable)

    def _train(self, run: BoundRun, *, slot: Slot, early: Early) -> Execution:
        self.active[run.identity] = run
        self.listener.run_started(run)
        self.mirroring.open_run(run)
        try:
            return execute(
                run.identity,
                ledger=self.ledger,
                owner=self.owner,
                nursery=self.nursery,
                limits=self.limits,
                early=early,
                runtime=Runtime(corpus=str(run.corpus_folder), device=slot.device),
                environment=slot.environment,
            )
        finally:
            del self.active[run.identity]

    def _slots(self) -> queue.Queue[Slot]:
        """The free slots; counted when the first run asks, since a submission that only reuses need not wait for devices."""
        with self.counting:
            if self.free is None:
                self.free = slot_queue(self.num_slots, num_gpus=self.nursery.gpus)
            return self.free

    def _heed(self) -> None:
        """End the work when its time is over, or when somebody asked for it."""
        limit = self.study_seconds
        if limit is not None and time.monotonic() - self.started > limit:
            self.limits.stop.end(Ending("timed-out", f"the study's limit of {limit:g} s"))
            return
        try:
            if stop_requested(self.ledger, submission=self.submission):
                self.limits.stop.end(Ending("cancelled", "stopped by `knockout stop`"))
        except WorkspaceError as unreadable:
            log.debug("%s; the next tick looks again", unreadable)

    def _tick(self) -> None:
        """While runs are active, show how far they are and mirror what they have measured."""
        while not self.over.wait(TICK_SECONDS):
            self._heed()
            for identity, run in list(self.active.items()):
                folder: Path = self.workspace.run(identity)
                if (progress := read_progress(folder)) is not None:
                    self.listener.run_progress(run, *progress)
                self.mirroring.metrics(run)
