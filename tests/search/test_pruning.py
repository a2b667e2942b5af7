"""Which trials are given up, where, and that it depends on nothing but evaluations."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest

from knockout.declare.tune import HyperbandPruner, MedianPruner, NoPruner, SlackPruner
from knockout.search.pruning import Pruning
from knockout.search.trial import Trial, TrialState

STEPS = 400
EVALUATIONS = tuple(range(50, STEPS + 1, 50))


def curves(seed: int, *, count: int) -> list[tuple[tuple[int, float], ...]]:
    """Falling curves that cross each other."""
    rng = np.random.default_rng(seed)
    drops = np.cumsum(rng.exponential(size=(count, len(EVALUATIONS))), axis=1)
    return [tuple(zip(EVALUATIONS, (20.0 - row).tolist(), strict=True)) for row in drops]


def trial_of(number: int, curve, *, state: TrialState = "done") -> Trial:
    return Trial(number, {}, state, curve[-1][1] if state == "done" else None, curve)


def expected_median(curve, *, past: list[Trial], startup: int, first: int) -> int | None:
    """Golovin et al. 2017, computed anew: the first step at which the best so far is over the median of the finished."""
    finished = [dict(trial.curve) for trial in past if trial.state == "done"]
    for step, _ in curve:
        best = min(value for at, value in curve if at <= step)
        if len(finished) >= startup and first <= step < STEPS and best > statistics.median(one[step] for one in finished):
            return step
    return None


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("startup", "after"), [(1, 0.0), (2, 0.25), (3, 0.5)])
def test_a_trial_over_the_median_of_the_finished_ones_is_given_up(seed: int, startup: int, after: float):
    past: list[Trial] = []
    for number, curve in enumerate(curves(seed, count=9)):
        found = Pruning(MedianPruner(startup=startup, after=after), num_steps=STEPS, past=past).decide(curve)
        step = expected_median(curve, past=past, startup=startup, first=int(after * STEPS))
        assert (found.step if found is not None else None) == step
        if found is not None:
            finished = sum(trial.state == "done" for trial in past)
            assert found.reason == f"over the median of {finished} trials at step {step}"
        kept = tuple(point for point in curve if step is None or point[0] <= step)
        past.append(trial_of(number, kept, state="done" if step is None else "pruned"))
    assert {trial.state for trial in past} == {"done", "pruned"}


@pytest.mark.parametrize(
    "pruner", [MedianPruner(), SlackPruner(slack=2.0), HyperbandPruner()], ids=lambda pruner: pruner.kind
)
def test_where_a_trial_is_given_up_does_not_depend_on_how_its_evaluations_arrive(pruner):
    past: list[Trial] = []
    for number, curve in enumerate(curves(7, count=12)):
        at_once = Pruning(pruner, num_steps=STEPS, past=past).decide(curve)
        piece_by_piece = Pruning(pruner, num_steps=STEPS, past=past)
        for length in range(1, len(curve) + 1):
            piece_by_piece.decide(curve[:length])
            piece_by_piece.decide(curve[:length])
        assert piece_by_piece.decide(curve) == at_once
        kept = tuple(point for point in curve if at_once is None or point[0] <= at_once.step)
        past.append(trial_of(number, kept, state="done" if at_once is None else "pruned"))
    assert {trial.state for trial in past} == {"done", "pruned"}


def test_what_a_trial_may_lag_behind_the_best_finished_one_shrinks_to_nothing():
    """With a slack of 0.8 from a quarter on: 0.8, 0.4 and 0.1 are left at 100, 250 and 363 (362.5) of 400 steps."""
    best, other = ((50, 3.0), (100, 2.0), (250, 1.5), (363, 1.0), (STEPS, 0.5)), ((100, 1.9), (STEPS, 0.9))
    past = [trial_of(0, best), trial_of(1, other, state="pruned")]

    def given_up(*curve: tuple[int, float]) -> int | None:
        found = Pruning(SlackPruner(slack=0.8), num_steps=STEPS, past=past).decide(curve)
        return found.step if found is not None else None

    assert given_up((50, 9.0)) is None
    assert [given_up((100, loss)) for loss in (2.79, 2.81)] == [None, 100]
    assert [given_up((250, loss)) for loss in (1.89, 1.91)] == [None, 250]
    assert [given_up((363, loss)) for loss in (1.09, 1.11)] == [None, 363]
    assert given_up((100, 2.5), (250, 2.6), (363, 1.0), (STEPS, 9.0)) == 250, "its best so far was at 100"
    assert given_up((STEPS, 9.0)) is None
    assert given_up((100, math.nan)) == 100


def test_slack_waits_for_as_many_finished_trials_as_asked():
    past = [
        trial_of(number, ((200, 1.0), (STEPS, 0.0)), state=state) for number, state in enumerate(("done", "pruned", "done"))
    ]
    bad = ((200, 9.0),)
    assert Pruning(SlackPruner(startup=2), num_steps=STEPS, past=past[:2]).decide(bad) is None
    found = Pruning(SlackPruner(startup=2), num_steps=STEPS, past=past).decide(bad)
    assert found is not None
    assert found.reason == "further behind the best of 2 trials than can be made up from step 200"


def test_a_trial_is_never_given_up_at_its_end_and_never_without_a_pruner():
    good, bad = curves(0, count=2)
    bad = tuple((step, 30.0 + value) for step, value in bad)
    past = [trial_of(0, good), trial_of(1, good)]
    late = tuple((step, value - 20.0 if step < STEPS else value) for step, value in bad)
    assert Pruning(MedianPruner(after=0.9), num_steps=STEPS, past=past).decide(late) is None
    assert Pruning(NoPruner(), num_steps=STEPS, past=past).decide(bad) is None
    assert Pruning(SlackPruner(), num_steps=STEPS, past=past).decide(bad) is not None


def test_hyperband_gives_up_all_but_the_best_share_at_a_rung():
    """One bracket: rungs at 200 steps only, since the next at 3 x 200 lies beyond the end."""
    pruner = HyperbandPruner(reduction=3, after=0.5)
    past: list[Trial] = []
    for number, curve in enumerate(curves(3, count=12)):
        at_rung = [dict(trial.curve)[200] for trial in past]
        mine = dict(curve)[200]
        place = sorted([*at_rung, mine]).index(mine)
        passes = place < max(1, (len(at_rung) + 1) // 3)
        found = Pruning(pruner, num_steps=STEPS, past=past).decide(curve)
        assert (found is None) == passes
        if found is not None:
            assert (found.step, found.reason) == (200, "not among the best 1 in 3 at step 200")
        kept = curve if found is None else tuple(point for point in curve if point[0] <= 200)
        past.append(trial_of(number, kept, state="done" if found is None else "pruned"))
    assert {trial.state for trial in past} == {"done", "pruned"}


@pytest.mark.parametrize("pruner", ["median", "slack"])
def test_what_a_search_prunes_saves_its_tokens_and_keeps_its_winner(searching, pruner: str):
    full = searching.walk(searching.open(trials=9, file="full.db"))
    pruned = searching.walk(searching.open(trials=9, pruner=pruner))
    trained = sum(trial.curve[-1][0] for trial in pruned) / (9 * searching.steps)
    assert trained < 2 / 3
    assert (
        min(full, key=lambda trial: trial.loss).values
        == min((trial for trial in pruned if trial.state == "done"), key=lambda trial: trial.loss).values
    )
