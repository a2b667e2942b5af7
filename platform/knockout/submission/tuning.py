"""Tuning a cell before it is judged: the same ranges and the same number of trials for every variant.

The invariant: a trial is a run like any other, in the ledger, with seeds of its own; the search only proposes. One
submission at a time searches a cell; another one waits and finds the result.
"""

from __future__ import annotations

import fcntl
import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from knockout.corpus.prepare import Prepared
from knockout.declare.document import Document
from knockout.declare.expand import Cell, PlannedRun
from knockout.declare.settings import Settings
from knockout.declare.tune import Tune
from knockout.errors import RunError
from knockout.ledger.identity import canonical, meaning
from knockout.ledger.store import LedgerRun
from knockout.ledger.workspace import Workspace
from knockout.search.cell import CellSearch, Trial, best, finished_trials, on_edge
from knockout.submission.bind import BoundRun, bind_run

FIRST_SEED = 1_000_000
"""Tuning seeds count from here, far from any judged one."""

Run = Callable[[BoundRun], LedgerRun]
"""Brings a run to its result."""


@dataclass(frozen=True)
class Tuned:
    """What tuning a cell came to."""

    variant: str
    size: str
    trials: tuple[Trial, ...]
    chosen: dict[str, float]
    """The best trial's settings."""
    edges: dict[str, str]
    """Chosen settings at an end of their range, with which end."""
    log: dict[str, bool]
    """Settings whose logarithm was searched."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def tune_cell(
    cell: Cell, *, tune: Tune, prepared: Prepared, workspace: Workspace, stop: threading.Event, run: Run
) -> tuple[Cell, Tuned]:
    """Search a cell's settings; the cell with the best ones, and the whole search.

    Raises:
        RunError: a trial ended without a result, or all of them diverged.
    """
    name = _name(cell, tune=tune, prepared=prepared)
    with _alone(workspace.folder / "searches" / f"{name}.lock", stop=stop):
        search = CellSearch(tune, storage=_storage(workspace, stop=stop), name=name)
        while (trial := search.ask()) is not None:
            search.tell(trial, loss=_loss(cell, trial=trial, tune=tune, prepared=prepared, run=run))
        trials = search.trials()
    chosen = best(trials)
    if chosen is None:
        raise RunError(
            f"{cell.variant} · {cell.size}: every one of its {len(trials)} trials diverged: widen the tuned ranges"
        )
    log = {path: range_.log for path, range_ in tune.ranges.items()}
    edges = on_edge(chosen.values, tune=tune)
    tuned = Tuned(cell.variant, cell.size, tuple(trials), dict(chosen.values), edges, log)
    return with_values(cell, values=chosen.values), tuned


def searched(cell: Cell, *, tune: Tune, prepared: Prepared | None, workspace: Workspace) -> tuple[Cell, int]:
    """The cell with the best settings that its search found so far, and how many trial runs are left. Changes nothing."""
    database = workspace.folder / "optuna.db"
    name = _name(cell, tune=tune, prepared=prepared) if prepared is not None else ""
    trials = finished_trials(f"sqlite:///{database}", name=name) if prepared is not None and database.exists() else []
    chosen = best(trials)
    left = max(0, tune.trials - len(trials)) * tune.seeds
    return (cell if chosen is None else with_values(cell, values=chosen.values)), left


def with_values(cell: Cell, *, values: Mapping[str, float]) -> Cell:
    """The cell with some settings at other values.

    Raises:
        DeclarationError: a value is not legal there.
    """
    data = cell.architecture.model_dump(mode="json") | cell.recipe.model_dump(mode="json")
    architecture, recipe = Settings(data).over(Document(dict(values))).resolve()
    return replace(cell, architecture=architecture, recipe=recipe)


def _loss(cell: Cell, *, trial: Trial, tune: Tune, prepared: Prepared, run: Run) -> float | None:
    """Mean loss of a trial's seeds; None when one diverged. A model that sees the future goes by generation_loss."""
    metric = "val_loss" if cell.architecture.causal else "generation_loss"
    tried = with_values(cell, values=trial.values)
    planned = [PlannedRun(tried, FIRST_SEED + i, role="trial", trial=trial.number) for i in range(tune.seeds)]
    ended = [run(bind_run(one, prepared=prepared)) for one in planned]
    losses = [one.metrics[metric] for one in ended if one.state == "done"]
    return sum(losses) / len(losses) if len(losses) == len(ended) else None


def _name(cell: Cell, *, tune: Tune, prepared: Prepared) -> str:
    """A name that changes with whatever bears on the search's result."""
    manifest = prepared.manifest
    bears = meaning(
        architecture=cell.architecture,
        recipe=cell.recipe,
        corpus=manifest.digest,
        evaluation=manifest.evaluation.model_dump(mode="json"),
        seed=FIRST_SEED,
    )
    return hashlib.sha256(canonical({"cell": bears, "tune": tune.model_dump(mode="json")}).encode()).hexdigest()[:20]


def _storage(workspace: Workspace, *, stop: threading.Event) -> str:
    """The database of all searches, made by one process at a time."""
    url = f"sqlite:///{workspace.folder / 'optuna.db'}"
    with _alone(workspace.folder / "searches" / "storage.lock", stop=stop):
        CellSearch.make_storage(url)
    return url


@contextmanager
def _alone(path: Path, *, stop: threading.Event) -> Iterator[None]:
    """Hold a lock file; it is free again when its holder ends, however it ends."""
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if stop.wait(0.5):
                    raise RunError("stopped while another submission tunes the same cell") from None
        yield
