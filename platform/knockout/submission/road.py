"""The road of a submission, step by step: prepare, bind, train, judge, report.

The invariant: the ledger alone decides what there is to do. A road that was cut off anywhere is walked again from the
start, and finds what is done.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

from knockout.account.matching import plan_study
from knockout.corpus.prepare import Prepared
from knockout.declare.load import Loaded
from knockout.declare.plan import Cell, Plan
from knockout.errors import RunEnded, RunError, Stopped, WorkspaceError
from knockout.ledger.inventory import is_done, note_shown
from knockout.ledger.lost import hand_on
from knockout.ledger.process import tells_death, this_process
from knockout.ledger.stops import Wanted, request_stop
from knockout.ledger.store import HELD, PRUNED, Ledger
from knockout.ledger.workspace import Workspace
from knockout.submission.bind import BoundRun, bind, write_meanings
from knockout.submission.concluding import Concluding, conclude, judge, open_variants
from knockout.submission.hands import Hands, LocalHands
from knockout.submission.listener import Listener
from knockout.submission.mirroring import Mirroring
from knockout.submission.options import Options
from knockout.submission.preparing import begin_preparing
from knockout.submission.revision import revision
from knockout.submission.ticking import Ticker
from knockout.submission.waiting import wait_awake
from knockout.training.execute import DAMAGED, Early, Execution, Limits, never
from knockout.training.result import read_result
from knockout.training.sharing import fetch_result
from knockout.training.stop import BY_USER, Ending, Stop
from knockout.training.untold import reconcile, take_up

if TYPE_CHECKING:
    from knockout.submission.tuned import Tuned

log = logging.getLogger(__name__)


def new_submission() -> str:
    """A name that no other submission has, and that sorts by its time."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}"


def local_hands(road: Road) -> Hands:
    """Processes of this machine, made ready beside other work, unless the plan was done before: they may not be needed."""
    hands = LocalHands(
        road.ledger,
        owner=road.owner,
        limits=road.limits,
        slots=road.options.slots,
        parallelism=road.parallelism,
        say=road.listener.note,
    )
    if not is_done(road.ledger, plan=road.plan.text):
        hands.get_ready()
    return hands


def by_user() -> Ending:
    """Who signals a command wants its submission ended."""
    return BY_USER


class Road:
    """Walks one submission. Enter it as a context: everything that it started ends with it."""

    def __init__(
        self,
        loaded: Loaded,
        *,
        workspace: Workspace,
        options: Options,
        listener: Listener,
        stop: Stop,
        submission: str | None = None,
        hands: Callable[[Road], Hands] | None = None,
        interrupted: Callable[[], Ending] = by_user,
    ) -> None:
        """`submission` is its name where it has one already; `hands` bring its runs to their ends, by default here.

        `interrupted` says what the work comes to when the process is signalled.
        """
        self.loaded = loaded
        self.plan: Plan = plan_study(loaded)
        self.workspace = workspace
        self.options = options
        self.parallelism = options.parallelism(self.plan.study.runtime, cells=self.plan.cells)
        self.listener = listener
        declared = self.plan.study.limits
        self.limits = Limits(run_seconds=options.run_seconds or declared.run_seconds, stop=stop)
        self.study_seconds = options.study_seconds or declared.study_seconds
        self.submission = submission or new_submission()
        self.make_hands = hands or local_hands
        self.interrupted = interrupted
        self.owner = this_process()
        self.started = time.monotonic()
        self.revision = revision()
        self.prepared: dict[int, Prepared] = {}
        self.runs: list[BoundRun] = []
        self.executions: dict[str, Execution] = {}
        self.active: dict[str, BoundRun] = {}
        self.tuned: dict[tuple[str, str], tuple[Cell, Tuned]] = {}
        self.submitted = False
        self.missed: str | None = None
        """What MLflow could not be told, once the submission has ended."""

    def __enter__(self) -> Road:
        self.ledger = Ledger(self.workspace)
        reconcile(self.ledger)
        if (known := self.ledger.submission(self.submission)) is not None:  # its limit counts from its beginning elsewhere
            self.started -= max(0.0, time.time() - known.created)
        self.hands = self.make_hands(self)
        self.mirroring = Mirroring(self.ledger, enabled=self.options.mlflow)
        self.ticker = self._ticker()
        self.ticker.__enter__()
        self.preparing = begin_preparing(
            self.plan, workspace=self.workspace, base=self.loaded.corpus_base, progress=self.listener.corpus
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None and not isinstance(error, Exception):
            self.interrupt()
        ending = self.ending(error) if error is not None else None
        if error is not None:
            self.limits.stop.end(Ending("cancelled", f"its submission ended: {error}"))
        self.hands.close()
        if ending is not None and not self.is_left:
            self.mirroring.give_up(state=ending[0], reason=ending[1])
        self.missed = self.mirroring.close(say=self.listener.note)
        if self.missed is not None:
            self.listener.note(self.missed)
        self.ticker.__exit__(kind, error, trace)
        if self.submitted and not self.is_replaced:
            self._leave(ending, shown=self.options.mlflow and self.missed is None)
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
                prefect=self.options.prefect,
            )
            self.submitted = True
            self.mirroring.open_submission(self.plan, submission=self.submission)
        wait_awake([self.preparing], until=self.limits.stop)
        self.raise_if_stopped()
        if not self.preparing.done():
            self.raise_if_ended()
        self.prepared = self.preparing.result()

    def raise_if_stopped(self) -> None:
        """Raise where the submission comes to no verdicts.

        Raises:
            Stopped: it was asked to stop, or is left to another process.
            RunError: it cannot go on, since the disk is full.
        """
        stop = self.limits.stop
        if not stop.is_set() or stop.ending.state == "timed-out":
            return
        if stop.ending.state == "failed" and not self.is_left:
            raise RunError(stop.ending.reason)
        raise Stopped(stop.ending.reason)

    def raise_if_ended(self) -> None:
        """Raise where the submission can go no further: Stopped when it was asked to, RunError at its limit."""
        self.raise_if_stopped()
        if self.limits.stop.is_set():
            raise RunError(f"{self.limits.stop.ending.reason}; the same command goes on from here")

    @property
    def is_replaced(self) -> bool:
        """Whether another process goes on with the submission, since this one was taken for dead."""
        return self.ticker.replaced.is_set()

    @property
    def is_left(self) -> bool:
        """Whether the submission goes on without this process: another has it, or is to take it over."""
        return self.is_replaced or (self.limits.stop.is_set() and tells_death(self.limits.stop.ending.reason))

    def interrupt(self) -> None:
        """End the work, since the process was signalled."""
        self.limits.stop.end(self.interrupted())

    def note_interrupt(self) -> None:
        """As `interrupt`, and noted in the ledger: so the record is true also when this process is cut off while it ends."""
        self.interrupt()
        ending = self.limits.stop.ending
        try:
            request_stop(self.ledger, submissions=[self.submission], wanted=Wanted(ending.state, ending.reason))
        except WorkspaceError as unwritable:
            log.debug("%s; the submission says itself how it ended, unless it is killed", unwritable)

    @property
    def is_over(self) -> bool:
        """Whether the time of the work is over: nothing more is trained, and what there is can be concluded."""
        return self.limits.stop.is_set()

    def ending(self, error: BaseException) -> tuple[str, str]:
        """The state and the reason of the submission when an error, or a signal, ends it."""
        stop = self.limits.stop
        if isinstance(error, Exception) and not (stop.is_set() and isinstance(error, RunError)):
            return "failed", str(error) or type(error).__name__
        ending = stop.ending if stop.is_set() else self.interrupted()
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
            say=self.listener.note,
        )
        self.tuned[cell.variant, cell.size] = (tuned_cell, tuned)
        self.listener.tuned(tuned)
        return tuned

    def bind(self) -> list[BoundRun]:
        """Give the judged runs their identity, with what was tuned; the different ones among them are to be trained."""
        self.plan = self._tuned_plan()
        self.runs = bind(self.plan, prepared=self.prepared)
        write_meanings(self.runs, workspace=self.workspace)
        self.ledger.ask(self.submission, runs=[run.ask() for run in self.runs])
        different = {run.identity: run for run in reversed(self.runs)}  # of equal runs the first one's name: the baseline's
        ended = self.executions
        done = [identity for identity, run in different.items() if identity in ended or self._has_result(run)]
        num_slots = self.hands.num_slots if len(done) < len(different) else 0
        self.listener.planned(self.plan, self.runs, done, num_slots)
        return [run for run in self.runs if different.get(run.identity) is run and run.identity not in ended]

    def pruned(self) -> list[BoundRun]:
        """The runs of pruned trials that have no result, where they are to be trained to their ends all the same."""
        if not self.options.check_pruning or self.limits.stop.is_set():
            return []
        points = [point for _, tuned in self.tuned.values() for point in tuned.points if point.trial.state == PRUNED]
        runs = [run for point in points for run in point.runs]
        write_meanings(runs, workspace=self.workspace)
        self.ledger.ask(self.submission, runs=[run.ask() for run in runs])
        open_ = [run for run in runs if not self._has_result(run)]
        self.listener.note(f"{len(points)} pruned trials: {len(runs) - len(open_)} runs reused, {len(open_)} to train on")
        return open_

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

    def train(self, run: BoundRun, *, early: Early = never) -> Execution:
        """Bring one run to its end, in a slot of its own, or to where `early` finds a reason to prune it.

        Raises:
            RunEnded: the run has no result.
        """
        try:
            execution = self.hands.train(run, early=early, began=partial(self._began, run))
        finally:
            self.active.pop(run.identity, None)
        stop = self.limits.stop
        if execution.disk_full:
            stop.end(Ending("failed", f"{self.workspace.folder} cannot be written: the disk is full"))
        if execution.run.state in HELD:  # another submission goes on with it
            raise RunEnded(run.name, state=stop.ending.state, reason=stop.ending.reason)
        if execution.run.state == "planned":
            execution = replace(execution, run=replace(execution.run, state=stop.ending.state, reason=stop.ending.reason))
        pruned = execution.run.state == PRUNED
        if execution.run.finished:
            fetch_result(self.workspace, run.identity)  # another machine may have trained it
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
        if not self.runs:  # the time was over before they were asked for
            self.runs = bind(self._tuned_plan(), prepared=self.prepared)
        trained = frozenset(identity for identity, execution in self.executions.items() if not execution.reused)
        tuned = [self.tuned[key][1] for cell in self.plan.cells if (key := (cell.variant, cell.size)) in self.tuned]
        concluding = conclude(
            self.plan,
            runs=self.runs,
            prepared=self.prepared,
            ledger=self.ledger,
            seconds=time.monotonic() - self.started,
            reused={identity: execution.reused for identity, execution in self.executions.items()},
            tuned=[one.anew(known=self.ledger.runs, trained=trained) for one in tuned],
            revision=self.revision,
            ending=stop.ending if stop.is_set() else None,
        )
        self.ledger.conclude(self.submission, state=concluding.state, reason=concluding.reason, facts=concluding.facts)
        self.mirroring.close_submission(concluding)
        self.listener.concluded(concluding.facts)
        return concluding

    def _tuned_plan(self) -> Plan:
        return self.plan.with_cells({key: cell for key, (cell, _) in self.tuned.items()})

    def _began(self, run: BoundRun) -> None:
        """A run is this submission's to train, or has a result."""
        self.active[run.identity] = run
        self.listener.run_started(run)
        self.mirroring.open_run(run)

    def _try(self, run: BoundRun, early: Early) -> Execution:
        """Bring a trial's run to its result, or to where it is pruned."""
        write_meanings([run], workspace=self.workspace)
        self.ledger.ask(self.submission, runs=[run.ask()])
        return self.train(run, early=early)

    def _has_result(self, run: BoundRun) -> bool:
        """Whether a run is done; one whose files are gone or damaged is not, whatever the ledger says."""
        known = self.ledger.run(run.identity)
        if known is None or not known.finished:
            return take_up(self.ledger, run.identity)
        fetch_result(self.workspace, run.identity)
        if read_result(self.workspace.run(run.identity)) is not None:
            return True
        self.ledger.reopen(run.identity, reason=DAMAGED)
        self.listener.note(f"{run.name}: {DAMAGED}; it is trained again")
        return False

    def _leave(self, ending: tuple[str, str] | None, *, shown: bool) -> None:
        """Record why the submission ended early, if it did, and whether MLflow was told of all."""
        try:
            if ending is not None and self.is_left:
                hand_on(self.ledger, submission=self.submission, owner=self.owner, reason=ending[1])
            elif ending is not None:
                self.ledger.conclude(self.submission, state=ending[0], reason=ending[1], facts=None)
            if shown and not self.is_left:
                note_shown(self.ledger, self.submission)
        except WorkspaceError as unwritable:
            log.debug("%s; the next command's reconciling records it", unwritable)

    def _ticker(self) -> Ticker:
        limit = self.study_seconds
        return Ticker(
            self.ledger,
            submission=self.submission,
            owner=self.owner,
            stop=self.limits.stop,
            until=self.started + limit if limit is not None else None,
            limit=f"the study's limit of {limit:g} s" if limit is not None else "",
            active=self.active,
            listener=self.listener,
            mirroring=self.mirroring,
        )
