"""The learning rate at a step, against values worked out by hand."""

from __future__ import annotations

import pytest

from knockout.declare.recipe import Constant, Cosine, Recipe
from knockout.training.schedule import learning_rate


def rates(recipe: Recipe, *, num_steps: int) -> list[float]:
    return [learning_rate(recipe, step=step, num_steps=num_steps) for step in range(num_steps)]


def test_warm_up_rises_linearly_and_half_a_cosine_falls_to_the_final_fraction():
    recipe = Recipe(tokens=1, batch=1, learning_rate=1.0, warmup_steps=4, schedule=Cosine(final=0.1))
    # After the peak: 0.1 + 0.9 (1 + cos(pi k / 4)) / 2 for k = 0 … 4, so cos = 1, 0.70711, 0, -0.70711, -1.
    expected = [0.25, 0.5, 0.75, 1.0, 1.0, 0.868198, 0.55, 0.231802, 0.1]
    assert rates(recipe, num_steps=9) == pytest.approx(expected, abs=1e-6)


def test_without_warm_up_the_first_step_has_the_peak():
    recipe = Recipe(tokens=1, batch=1, learning_rate=0.01, schedule=Cosine(final=0.0))
    assert rates(recipe, num_steps=3) == pytest.approx([0.01, 0.005, 0.0])


def test_a_constant_schedule_stays_at_the_peak():
    recipe = Recipe(tokens=1, batch=1, learning_rate=0.01, warmup_steps=2, schedule=Constant())
    assert rates(recipe, num_steps=5) == pytest.approx([0.005, 0.01, 0.01, 0.01, 0.01])


@pytest.mark.parametrize("num_steps", [1, 2, 3])
def test_a_run_that_is_shorter_than_its_warm_up_still_has_a_rate_at_each_step(num_steps: int):
    recipe = Recipe(tokens=1, batch=1, learning_rate=1.0, warmup_steps=3)
    assert rates(recipe, num_steps=num_steps) == pytest.approx([1 / 3, 2 / 3, 1.0][:num_steps])


def test_a_run_of_one_step_has_the_peak():
    assert rates(Recipe(tokens=1, batch=1, learning_rate=1.0), num_steps=1) == [1.0]
