"""How many devices one run takes. Where a run executes bears no identity: its data, its steps and its exam stay the same.

The invariant: every device takes the same number of windows of every micro-batch.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from knockout.declare.base import Declaration
from knockout.declare.recipe import Recipe

MOST_DEVICES = 1024
Strategy = Literal["ddp", "fsdp"]


class Parallelism(Declaration):
    """The devices of one run, a process each, and what they share."""

    devices: Annotated[int, Field(ge=1, le=MOST_DEVICES)] = 1
    """GPUs, or cores where there are none, that one run takes; must divide the windows of a micro-batch. 1 to 1024."""
    strategy: Strategy = "ddp"
    """ddp: a whole copy of the network on each (Li et al. 2020, "PyTorch Distributed"); fsdp: each holds a part of
    weights, gradients and moments (Zhao et al. 2023, "PyTorch FSDP")."""

    def undivided(self, recipe: Recipe) -> str | None:
        """Why a recipe cannot be trained on so many devices, or None."""
        windows = recipe.batch // recipe.accumulate
        if windows % self.devices == 0:
            return None
        cut = f"batch {recipe.batch} / accumulate {recipe.accumulate}"
        return f"{self.devices} devices must divide the {windows} windows of a micro-batch ({cut})"
