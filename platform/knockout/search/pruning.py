"""When a trial is given up: Optuna's pruners and one more, asked about the evaluations of one trial after another.

The invariant: where a trial is pruned depends on its own evaluations and on the trials before it, in their order, never on
time: the search so far is replayed in memory, and nothing that an earlier process left behind bears on a decision.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import optuna
from optuna.pruners import BasePruner
from optuna.samplers import RandomSampler
from optuna.trial import FrozenTrial, TrialState

from knockout.declare.tune import HyperbandPruner, MedianPruner, NoPruner, Pruner, SlackPruner
from knockout.search.trial import Curve, Trial

NAME = "search"
"""Hyperband gives a trial its bracket by this and the trial's number: the same for every variant."""


@dataclass(frozen=True)
class Pruned:
    """Where a trial is pruned, and why."""

    step: int
    reason: str


class Pruning:
    """Decides on one trial after another; `past` are the trials before, in order."""

    def __init__(self, pruner: Pruner, *, num_steps: int, past: Sequence[Trial] = ()) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.pruner = pruner
        self.num_steps = num_steps
        self.study = optuna.create_study(
            direction="minimize",
            study_name=NAME,
            sampler=RandomSampler(seed=0),
            pruner=_optuna(pruner, num_steps=num_steps),
        )
        for trial in past:
            self._replay(trial)
        self.trial = self.study.ask()
        self.seen = 0
        self.decided: Pruned | None = None

    def decide(self, curve: Curve) -> Pruned | None:
        """Where the trial with these evaluations so far is pruned; None while it goes on.

        An evaluation at the last step ends nothing: the run is over then, and counts in full.
        """
        for step, value in _before_end(curve, num_steps=self.num_steps):
            if self.decided is None and step > self.seen:
                self.seen = step
                self.trial.report(value, step)
                if self.trial.should_prune():
                    self.decided = Pruned(step, self._reason(step))
        return self.decided

    def _replay(self, trial: Trial) -> None:
        again = self.study.ask()
        for step, value in _before_end(trial.curve, num_steps=self.num_steps):
            again.report(value, step)
            again.should_prune()  # successive halving notes what has reached its rungs
        match trial.state:
            case "done":
                self.study.tell(again, trial.loss)
            case "pruned":
                self.study.tell(again, state=TrialState.PRUNED)
            case _:
                self.study.tell(again, state=TrialState.FAIL)

    def _reason(self, step: int) -> str:
        finished = self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        compared = sum(step in trial.intermediate_values for trial in finished)
        match self.pruner:
            case MedianPruner():
                return f"over the median of {compared} trials at step {step}"
            case SlackPruner():
                return f"further behind the best of {compared} trials than can be made up from step {step}"
            case HyperbandPruner(reduction=reduction):
                return f"not among the best 1 in {reduction} at step {step}"
            case NoPruner():
                raise ValueError("nothing is pruned without a pruner")


class _Slack(BasePruner):
    """Holds a trial against the best of the finished ones."""

    def __init__(self, pruner: SlackPruner, *, num_steps: int) -> None:
        self.pruner = pruner
        self.num_steps = num_steps

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        step = trial.last_step
        finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        first = self.pruner.after * self.num_steps
        if step is None or step < first or len(finished) < self.pruner.startup:
            return False
        left = (self.num_steps - step) / (self.num_steps - first)
        best = min(_best(other, step=step) for other in finished)
        return _best(trial, step=step) > best + left * self.pruner.slack


def _best(trial: FrozenTrial, *, step: int) -> float:
    """The smallest loss of a trial up to a step; infinite where it has none."""
    losses = (value for at, value in trial.intermediate_values.items() if at <= step and not math.isnan(value))
    return min(losses, default=math.inf)


def _before_end(curve: Curve, *, num_steps: int) -> Iterable[tuple[int, float]]:
    return ((step, value) for step, value in curve if step < num_steps)


def _optuna(pruner: Pruner, *, num_steps: int) -> BasePruner:
    """Every option is explicit: defaults change between versions."""
    match pruner:
        case NoPruner():
            return optuna.pruners.NopPruner()
        case MedianPruner(startup=startup, after=after):
            return optuna.pruners.MedianPruner(
                n_startup_trials=startup, n_warmup_steps=int(after * num_steps), interval_steps=1, n_min_trials=startup
            )
        case SlackPruner():
            return _Slack(pruner, num_steps=num_steps)
        case HyperbandPruner(reduction=reduction, after=after):
            first = max(1, int(after * num_steps))
            return optuna.pruners.HyperbandPruner(
                min_resource=first, max_resource=num_steps, reduction_factor=reduction, bootstrap_count=0
            )
