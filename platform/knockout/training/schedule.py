"""The learning rate as a pure function of the step: nothing to save, nothing that a resumed run could get wrong."""

from __future__ import annotations

import math

from knockout.declare.recipe import Cosine, Recipe


def learning_rate(recipe: Recipe, *, step: int, num_steps: int) -> float:
    """Learning rate of the optimizer step with index `step`, from 0 to num_steps - 1.

    Linear warm-up, then half a cosine down to `final` × peak at the last step (Loshchilov & Hutter 2017, without
    restarts), or the peak throughout.
    """
    if step < recipe.warmup_steps:
        return recipe.learning_rate * (step + 1) / recipe.warmup_steps
    if not isinstance(recipe.schedule, Cosine):
        return recipe.learning_rate
    span = max(1, num_steps - 1 - recipe.warmup_steps)
    progress = min(1.0, (step - recipe.warmup_steps) / span)
    final = recipe.schedule.final
    return recipe.learning_rate * (final + (1.0 - final) * 0.5 * (1.0 + math.cos(math.pi * progress)))
