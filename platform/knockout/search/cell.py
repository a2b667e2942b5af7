"""The search of one cell: an Optuna study that one coordinator asks and tells.

The invariant: what is proposed depends on the search's name and the results so far, never on time or process, so a search
that is walked again proposes the same trials, and their runs are found in the ledger.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass

import optuna
from optuna.distributions import FloatDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import TrialState

from knockout.declare.tune import Grid, Random, Range, Tpe, Tune

ASKED = (TrialState.RUNNING, TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
EDGE = 0.02
"""A best value within this share of its range's ends is on the edge."""


@dataclass(frozen=True)
class Trial:
    """One point of a search, and what it came to; None: diverged, or not told yet."""

    number: int
    values: dict[str, float]
    loss: float | None


class CellSearch:
    """Opens the search of that name, or makes it; what a dead coordinator left open is asked again."""

    def __init__(self, tune: Tune, *, storage: str, name: str) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.tune = tune
        self.name = name
        self.study = optuna.create_study(
            storage=storage, study_name=name, direction="minimize", load_if_exists=True, pruner=optuna.pruners.NopPruner()
        )
        self.open = {trial.number: trial for trial in self.study.get_trials(states=(TrialState.RUNNING,))}

    @staticmethod
    def make_storage(url: str) -> None:
        """Make the database and its tables, once; two processes must not do this at the same time."""
        optuna.storages.RDBStorage(url)

    def ask(self) -> Trial | None:
        """The next trial to run; None when the budget is spent."""
        if self.open:
            trial = self.open.pop(min(self.open))
            return Trial(trial.number, dict(trial.params), None)
        number = len(self.study.get_trials(deepcopy=False, states=ASKED))
        if number >= self.tune.trials:
            return None
        self.study.sampler = _sampler(self.tune, seed=_seed(self.name, number))
        if isinstance(self.tune.sampler, Grid) and not self.study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
            spread = {path: _spread(range_, count=self.tune.trials) for path, range_ in self.tune.ranges.items()}
            self.study.enqueue_trial({path: values[number] for path, values in spread.items()})
        asked = self.study.ask({path: _distribution(range_) for path, range_ in self.tune.ranges.items()})
        return Trial(asked.number, dict(asked.params), None)

    def tell(self, trial: Trial, *, loss: float | None) -> None:
        """What a trial came to; None when it diverged. A trial is told once: telling it again changes nothing."""
        if loss is None or not math.isfinite(loss):
            self.study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)
        else:
            self.study.tell(trial.number, loss, skip_if_finished=True)

    def trials(self) -> list[Trial]:
        """All trials in order, with their losses."""
        return [Trial(t.number, dict(t.params), t.value) for t in self.study.get_trials(deepcopy=False)]


def finished_trials(storage: str, *, name: str) -> list[Trial]:
    """The trials of a search that have ended; none where there is no such search. Changes nothing."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        study = optuna.load_study(study_name=name, storage=storage)
    except KeyError:
        return []
    ended = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.FAIL))
    return [Trial(t.number, dict(t.params), t.value) for t in ended]


def best(trials: list[Trial]) -> Trial | None:
    """The trial with the smallest loss, the first of equals; None when all diverged."""
    finished = [trial for trial in trials if trial.loss is not None]
    return min(finished, key=lambda trial: (trial.loss, trial.number), default=None)


def on_edge(values: Mapping[str, float], *, tune: Tune) -> dict[str, str]:
    """The settings whose value is at an end of its range, with which end."""
    edges = {path: _edge(value, range_=tune.ranges[path]) for path, value in values.items()}
    return {path: edge for path, edge in edges.items() if edge is not None}


def _edge(value: float, *, range_: Range) -> str | None:
    low, high, here = (math.log(x) if range_.log else x for x in (range_.low, range_.high, value))
    place = (here - low) / (high - low)
    return "low" if place <= EDGE else "high" if place >= 1.0 - EDGE else None


def _distribution(range_: Range) -> FloatDistribution:
    return FloatDistribution(range_.low, range_.high, log=range_.log)


def _sampler(tune: Tune, *, seed: int) -> BaseSampler:
    """Every option that bears on what is proposed is explicit: defaults change between versions."""
    match tune.sampler:
        case Tpe(startup=startup):
            return TPESampler(
                n_startup_trials=startup, n_ei_candidates=24, multivariate=False, group=False, constant_liar=False, seed=seed
            )
        case Random() | Grid():  # a grid's points are queued, so its sampler is never asked
            return RandomSampler(seed=seed)


def _spread(range_: Range, *, count: int) -> list[float]:
    """`count` values from low to high, evenly spaced, in the logarithm where that is searched."""
    low, high = (math.log(range_.low), math.log(range_.high)) if range_.log else (range_.low, range_.high)
    inner = [low + (high - low) * i / (count - 1) for i in range(1, count - 1)]
    return [range_.low, *(math.exp(x) if range_.log else x for x in inner), range_.high]


def _seed(name: str, number: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{name}/{number}".encode()).digest()[:4], "big")
