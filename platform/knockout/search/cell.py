"""The search of one cell: an Optuna study that one coordinator asks and tells.

The invariant: what is proposed, pruned and extended depends on the declaration and the results so far, never on time or
process, so a search that is walked again proposes the same trials, and their runs are found in the ledger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import optuna
from optuna.samplers import RandomSampler
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from knockout.declare.tune import Grid, Tune
from knockout.search.edges import AsRun, extension, reached, unrounded
from knockout.search.pruning import Pruned, Pruning
from knockout.search.sampling import distribution, grid_point, sampler
from knockout.search.storage import open_storage, telling
from knockout.search.trial import Curve, Trial, TrialState

STATES: dict[OptunaState, TrialState] = {
    OptunaState.RUNNING: "open",
    OptunaState.COMPLETE: "done",
    OptunaState.FAIL: "diverged",
    OptunaState.PRUNED: "pruned",
}
"""Optuna's word for each of ours; one that only waits is no trial yet."""
REASON, EXTENDS = "reason", "extends"


class CellSearch:
    """Opens the search of that name, or makes it; what a dead coordinator left open is asked again.

    `num_steps` are a run's; `accepts` says whether a point beyond the ranges is legal, `as_run` what a run makes of one.
    Every verb raises WorkspaceError where the database is damaged, or cannot be read or written.
    """

    def __init__(
        self,
        tune: Tune,
        *,
        storage: str,
        name: str,
        num_steps: int,
        accepts: Callable[[Mapping[str, float]], bool],
        as_run: AsRun = unrounded,
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.tune = tune
        self.num_steps = num_steps
        self.accepts = accepts
        self.as_run = as_run
        self.storage = storage
        with telling(storage):
            self.study = optuna.create_study(
                storage=open_storage(storage),
                study_name=name,
                direction="minimize",
                load_if_exists=True,
                pruner=optuna.pruners.NopPruner(),
            )
        self.open = {trial.number: trial for trial in self.trials() if trial.state == "open"}

    @staticmethod
    def make_storage(url: str) -> None:
        """Make the database and its tables, once; two processes must not do this at the same time."""
        open_storage(url)

    def ask(self) -> Trial | None:
        """The next trial to run; None when the budget is spent and the best lies within what was searched."""
        if self.open:
            return self.open.pop(min(self.open))
        trials = self.trials()
        with telling(self.storage):
            if len(trials) < self.tune.trials:
                return self._propose(len(trials))
            further = extension(trials, tune=self.tune, accepts=self.accepts, as_run=self.as_run)
            return self._extend(*further, trials=trials) if further is not None else None

    def pruning(self, trial: Trial) -> Pruning:
        """What decides whether a trial that was asked is pruned."""
        past = [before for before in self.trials() if before.number < trial.number]
        return Pruning(self.tune.pruner, num_steps=self.num_steps, past=past)

    def tell(self, trial: Trial, *, loss: float | None, curve: Curve = (), pruned: Pruned | None = None) -> None:
        """What a trial came to: `pruned`, or a loss, None when it diverged. Telling it again changes nothing."""
        with telling(self.storage):
            self._tell(trial, loss=loss, curve=curve, pruned=pruned)

    def _tell(self, trial: Trial, *, loss: float | None, curve: Curve, pruned: Pruned | None) -> None:
        known = self.study.get_trials(deepcopy=False)[trial.number]
        if known.state.is_finished():
            return
        live = optuna.trial.Trial(self.study, known._trial_id)
        for step, value in curve:
            if step not in known.intermediate_values and (pruned is None or step <= pruned.step):
                live.report(value, step)
        if pruned is not None:
            live.set_user_attr(REASON, pruned.reason)
            self.study.tell(trial.number, state=OptunaState.PRUNED)
        elif loss is None or not math.isfinite(loss):
            self.study.tell(trial.number, state=OptunaState.FAIL)
        else:
            self.study.tell(trial.number, loss)

    def trials(self) -> list[Trial]:
        """All trials in order, and what they came to."""
        with telling(self.storage):
            return _trials(self.study)

    def _propose(self, number: int) -> Trial:
        """A trial within the ranges."""
        self.study.sampler = sampler(self.tune, number=number)
        if isinstance(self.tune.sampler, Grid) and not self._waiting():
            self.study.enqueue_trial(grid_point(self.tune, number=number))
        asked = self.study.ask({path: distribution(range_) for path, range_ in self.tune.ranges.items()})
        return Trial(asked.number, dict(asked.params))

    def _extend(self, path: str, point: dict[str, float], *, trials: list[Trial]) -> Trial:
        """A trial beyond the range of a setting."""
        self.study.sampler = RandomSampler(seed=0)  # never asked: the point is queued
        if not self._waiting():
            self.study.enqueue_trial(point, user_attrs={EXTENDS: path})
        ranges = reached(self.tune, trials=[*trials, Trial(len(trials), point)])
        asked = self.study.ask({path: distribution(range_) for path, range_ in ranges.items()})
        return Trial(asked.number, dict(asked.params), extends=path)

    def _waiting(self) -> bool:
        """Whether a dead coordinator has queued a point and did not ask for it."""
        return bool(self.study.get_trials(deepcopy=False, states=(OptunaState.WAITING,)))


def finished_trials(storage: str, *, name: str) -> list[Trial]:
    """The trials of a search that have ended; none where there is no such search. Changes nothing.

    Raises:
        WorkspaceError: the database is damaged, or cannot be read.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with telling(storage):
        try:
            study = optuna.load_study(study_name=name, storage=open_storage(storage))
        except KeyError:
            return []
        return [trial for trial in _trials(study) if trial.state != "open"]


def _trials(study: optuna.Study) -> list[Trial]:
    return [_trial(known) for known in study.get_trials(deepcopy=False, states=tuple(STATES))]


def _trial(known: FrozenTrial) -> Trial:
    """Optuna gives a pruned trial its last evaluation for a value, which is no loss of a whole run."""
    return Trial(
        number=known.number,
        values=dict(known.params),
        state=STATES[known.state],
        loss=known.value if known.state == OptunaState.COMPLETE else None,
        curve=tuple(sorted(known.intermediate_values.items())),
        reason=known.user_attrs.get(REASON),
        extends=known.user_attrs.get(EXTENDS),
    )
