"""Which trials are given up, where, and that it depends on nothing but evaluations."""

from __future__ import annotations

import statistics

import numpy as np
import pytest

from knockout.declare.tune import HyperbandPruner, MedianPruner, NoPruner, PercentilePruner
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


@pytest.mark.parametrize("pruner", [MedianPruner(), PercentilePruner(), HyperbandPruner()], ids=lambda pruner: pruner.kind)
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


def test_with_a_percentile_a_trial_is_held_against_the_better_ones_alone():
    """Of losses 1, 2, 3, 4, 5 the percentile 25 is 2, and the percentile 0 is 1."""
    past = [trial_of(number, ((200, float(1 + number)), (STEPS, 0.0))) for number in range(5)]

    def given_up(loss: float, *, percentile: float) -> bool:
        pruner = PercentilePruner(percentile=percentile)
        return Pruning(pruner, num_steps=STEPS, past=past).decide(((200, loss),)) is not None

    assert [given_up(loss, percentile=25.0) for loss in (1.9, 2.0, 2.1)] == [False, False, True]
    assert [given_up(loss, percentile=0.0) for loss in (1.0, 1.1)] == [False, True]
    assert [given_up(loss, percentile=50.0) for loss in (3.0, 3.1)] == [False, True]


def test_a_trial_is_never_given_up_at_its_end_and_never_without_a_pruner():
    good, bad = curves(0, count=2)
    bad = tuple((step, 30.0 + value) for step, value in bad)
    past = [trial_of(0, good), trial_of(1, good)]
    late = tuple((step, value - 20.0 if step < STEPS else value) for step, value in bad)
    assert Pruning(MedianPruner(after=0.9), num_steps=STEPS, past=past).decide(late) is None
    assert Pruning(NoPruner(), num_steps=STEPS, past=past).decide(bad) is None
    assert Pruning(MedianPruner(), num_steps=STEPS, past=past).decide(bad) is not None


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


def test_what_a_search_prunes_saves_its_tokens_and_keeps_its_winner(searching):
    full = searching.walk(searching.open(trials=9, file="full.db"))
    pruned = searching.walk(searching.open(trials=9, pruner="median"))
    trained = sum(trial.curve[-1][0] for trial in pruned) / (9 * searching.steps)
    assert trained < 2 / 3
    assert (
        min(full, key=lambda trial: trial.loss).values
        == min((trial for trial in pruned if trial.state == "done"), key=lambda trial: trial.loss).values
    )
