"""Tuning a cell before it is judged: the same ranges, the same number of trials, the same pruning for every variant.

The invariant: a trial is a run like any other, in the ledger, with seeds of its own; the search only proposes, and says from
the run's evaluations whether it goes on. One submission at a time searches a cell; another one waits and finds the result.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from knockout.corpus.prepare import Prepared
from knockout.declare.document import Document
from knockout.declare.plain import canonical
from knockout.declare.plan import Cell, PlannedRun
from knockout.declare.settings import Settings
from knockout.declare.study import TRIAL_SEED
from knockout.declare.tune import Tune, as_declared
from knockout.errors import DeclarationError, RunError
from knockout.ledger.identity import meaning
from knockout.ledger.process import this_process
from knockout.ledger.store import LedgerRun
from knockout.ledger.workspace import Workspace
from knockout.search import storage
from knockout.search.cell import CellSearch, finished_trials
from knockout.search.edges import best, extension, on_edge, reached
from knockout.search.pruning import Pruned, Pruning
from knockout.search.trial import Trial
from knockout.services.database import find_database
from knockout.services.locks import acquired
from knockout.services.waiting import TELL_AFTER_SECONDS, Say
from knockout.submission.bind import BoundRun, bind_run
from knockout.submission.curve import RunCurve
from knockout.submission.estimating import whole_trials
from knockout.submission.tuned import Known, TriedPoint, Tuned, cost_of
from knockout.training.execute import Early, Execution, never
from knockout.training.sharing import FollowedMetrics

Run = Callable[[BoundRun, Early], Execution]
"""Brings a run to its result, or to where it is ended early."""


def tune_cell(
    cell: Cell,
    *,
    tune: Tune,
    prepared: Prepared,
    workspace: Workspace,
    stop: threading.Event,
    run: Run,
    known: Known,
    say: Say,
) -> tuple[Cell, Tuned]:
    """Search a cell's settings; the cell with the best ones, and the whole search. `say` is told who is waited for.

    Raises:
        RunError: a trial ended without a result, or none came to one.
    """
    trying = _Trying(cell, tune=tune, prepared=prepared, workspace=workspace, run=run)
    name = _name(cell, tune=tune, prepared=prepared)
    waits = partial(_say_waiting, say, f"{cell.variant} · {cell.size}")
    with _alone(name, workspace=workspace, stop=stop, waits=waits):
        search = CellSearch(
            tune,
            storage=_storage(workspace, stop=stop),
            name=name,
            num_steps=cell.num_steps,
            accepts=partial(_is_legal, cell),
            as_run=partial(_as_run, cell),
        )
        while (trial := search.ask()) is not None:
            trying.bring(trial, search=search)
        trials = search.trials()
    chosen = best(trials)
    if chosen is None:
        states = [trial.state for trial in trials]
        ends = f"{states.count('diverged')} diverged, {states.count('pruned')} were pruned"
        who = f"{cell.variant} · {cell.size}: none of its {len(trials)} trials"
        raise RunError(f"{who} came to a result ({ends}): widen the tuned ranges")
    tuned_cell = with_values(cell, values=chosen.values)
    tuned = Tuned(
        cell.variant,
        cell.size,
        tuple(trying.point(trial, known=known) for trial in trials),
        _as_run(cell, chosen.values),
        on_edge(chosen.values, ranges=reached(tune, trials=trials), as_run=partial(_as_run, cell)),
        {path: range_.log for path, range_ in tune.ranges.items()},
        _metric(cell),
    )
    return tuned_cell, tuned


@dataclass(frozen=True)
class _Outcome:
    """What a trial's runs came to."""

    loss: float | None
    pruned: Pruned | None


class _Trying:
    """The trials of one cell, one after the other."""

    def __init__(self, cell: Cell, *, tune: Tune, prepared: Prepared, workspace: Workspace, run: Run) -> None:
        self.cell = cell
        self.tune = tune
        self.prepared = prepared
        self.workspace = workspace
        self.run = run
        self.trained: set[str] = set()
        """Identities of the runs that this submission trained."""

    def bring(self, trial: Trial, *, search: CellSearch) -> None:
        """Bring a trial to its end, and tell the search."""
        first, *others = self._runs(trial)
        with FollowedMetrics(self.workspace, first.identity) as followed:
            folder = self.workspace.run(first.identity)
            curve = RunCurve(folder, metric=_metric(self.cell), elsewhere=followed.look)
            outcome = self._outcome(first, others, curve=curve, pruning=search.pruning(trial))
            search.tell(trial, loss=outcome.loss, curve=curve.read(), pruned=outcome.pruned)

    def point(self, trial: Trial, *, known: Known) -> TriedPoint:
        """A trial with what the ledger says that it cost."""
        runs = self._runs(trial)
        as_run = replace(trial, values=_as_run(self.cell, trial.values))
        reused = not any(run.identity in self.trained for run in runs)
        return TriedPoint(as_run, cost_of(runs, known=known), runs=tuple(runs), reused=reused)

    def _runs(self, trial: Trial) -> list[BoundRun]:
        tried = with_values(self.cell, values=trial.values)
        planned = [PlannedRun(tried, TRIAL_SEED + i, role="trial", trial=trial.number) for i in range(self.tune.seeds)]
        return [bind_run(one, prepared=self.prepared) for one in planned]

    def _outcome(self, first: BoundRun, others: list[BoundRun], *, curve: RunCurve, pruning: Pruning) -> _Outcome:
        """The mean loss of all seeds, None when one diverged; where the first is pruned, the others are not run."""

        def early() -> str | None:
            decided = pruning.decide(curve.read())
            return decided.reason if decided is not None else None

        ended = [self._bring(first, early)]
        if (pruned := pruning.decide(curve.read())) is not None:
            return _Outcome(None, pruned)
        ended += [self._bring(run, never) for run in others]
        losses = [one.metrics[_metric(self.cell)] for one in ended if one.state == "done"]
        return _Outcome(sum(losses) / len(losses) if len(losses) == len(ended) else None, None)

    def _bring(self, run: BoundRun, early: Early) -> LedgerRun:
        execution = self.run(run, early)
        if not execution.reused:
            self.trained.add(run.identity)
        return execution.run


@dataclass(frozen=True)
class Searched:
    """How far a cell's search is."""

    name: str | None
    """The search's, which cells that are searched alike share; None while their corpus is not prepared."""
    cell: Cell
    """With the best settings found so far."""
    left: int
    """Trial runs that are left; those beyond the ranges are not foreseen before the last one within them."""
    whole: float
    """Runs to their ends that take as long as those, as far as is foreseen of pruning."""


def searched(cell: Cell, *, tune: Tune, prepared: Prepared | None, workspace: Workspace) -> Searched:
    """How far the search of a cell is. Changes nothing."""
    trials: list[Trial] = []
    name = _name(cell, tune=tune, prepared=prepared) if prepared is not None else None
    if name is not None and storage.is_there(workspace.folder):
        trials = finished_trials(storage.address(workspace.folder), name=name)
    chosen = best(trials)
    within = max(0, tune.trials - len(trials))
    asked = {"accepts": partial(_is_legal, cell), "as_run": partial(_as_run, cell)}
    further = within == 0 and extension(trials, tune=tune, **asked) is not None
    left = (within + further) * tune.seeds
    found = cell if chosen is None else with_values(cell, values=chosen.values)
    return Searched(name, found, left, whole_trials(left, tune=tune))


def with_values(cell: Cell, *, values: Mapping[str, float]) -> Cell:
    """The cell with some settings at other values.

    Raises:
        DeclarationError: a value is not legal there.
    """
    architecture, recipe = Settings(_settings(cell)).over(Document(_as_run(cell, values))).resolve()
    return replace(cell, architecture=architecture, recipe=recipe)


def _settings(cell: Cell) -> dict[str, Any]:
    return cell.architecture.model_dump(mode="json") | cell.recipe.model_dump(mode="json")


def _as_run(cell: Cell, values: Mapping[str, float]) -> dict[str, float]:
    return as_declared(values, settings=_settings(cell))


def _is_legal(cell: Cell, values: Mapping[str, float]) -> bool:
    try:
        with_values(cell, values=values)
    except DeclarationError:
        return False
    return True


def _metric(cell: Cell) -> str:
    """What a trial goes by, as the judged runs do: a model that sees the future goes by generation_loss."""
    return "val_loss" if cell.architecture.predicts_next else "generation_loss"


def _name(cell: Cell, *, tune: Tune, prepared: Prepared) -> str:
    """A name that changes with whatever bears on the search's result; what is searched does not."""
    manifest = prepared.manifest
    anywhere = with_values(cell, values={path: range_.low for path, range_ in tune.ranges.items()})
    bears = meaning(
        architecture=anywhere.architecture,
        recipe=anywhere.recipe,
        corpus=manifest.digest,
        evaluation=manifest.evaluation.model_dump(mode="json"),
        seed=TRIAL_SEED,
    )
    return hashlib.sha256(canonical({"cell": bears, "tune": tune.model_dump(mode="json")}).encode()).hexdigest()[:20]


def _storage(workspace: Workspace, *, stop: threading.Event) -> str:
    """The database of all searches, made by one process at a time."""
    url = storage.address(workspace.folder)
    with _alone("storage", workspace=workspace, stop=stop, waits=lambda _: None):
        CellSearch.make_storage(url)
    return url


@contextmanager
def _alone(name: str, *, workspace: Workspace, stop: threading.Event, waits: Callable[[str], object]) -> Iterator[None]:
    """Hold a lock file, which says by whom, and a lock of the database that machines share; they are free again when their
    holder ends, however it ends. `waits` is told the holder, once, where it is waited for."""
    path, database = workspace.folder / "searches" / f"{name}.lock", find_database(workspace.folder)
    path.parent.mkdir(exist_ok=True)
    started, told = time.monotonic(), False
    with path.open("a+") as lock:
        while True:
            turn = nullcontext(True) if database is None else database.turn(f"search {name}")
            if acquired(lock.fileno()):
                with turn as mine:
                    if mine:
                        lock.truncate(0)
                        print(this_process(), end="", file=lock, flush=True)
                        yield
                        return
            if not told and time.monotonic() - started > TELL_AFTER_SECONDS:
                told = True
                waits(path.read_text() or "another process")
            if stop.wait(0.5):
                raise RunError("stopped while another submission tunes the same cell")


def _say_waiting(say: Say, cell: str, holder: str) -> None:
    say(f"waiting for {holder}, which searches the settings of {cell}; it is waited for also where it stands still")
