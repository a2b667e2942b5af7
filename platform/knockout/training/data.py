"""What Lightning iterates over: the batch of each step, as a function of the step alone.

The invariant: there is no loader state. A resumed run starts at its step and sees what an uninterrupted one sees.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from knockout.corpus.batches import batch
from knockout.corpus.manifest import Manifest
from knockout.corpus.reading import Split
from knockout.corpus.shuffled import shuffled
from knockout.declare.recipe import ContiguousPacking, DocumentPacking, Packing
from knockout.training.seeds import derived
from knockout.training.spec import RunSpec


def border(packing: Packing, *, manifest: Manifest) -> int | None:
    """The token that divides a window into documents; None where windows are read as a whole."""
    match packing:
        case ContiguousPacking():
            return None
        case DocumentPacking():
            return manifest.end_of_text


class StepBatches:
    """Micro-batches [batch / accumulate, context + 1] of int64 from `start` to the run's last step, on their device."""

    def __init__(self, split: Split, *, spec: RunSpec, start: int, device: str) -> None:
        self.split = shuffled(split) if spec.recipe.shuffle_tokens else split
        self.spec = spec
        self.start = start
        self.device = device
        self.seed = derived(spec.seed, "data")

    def __iter__(self) -> Iterator[Tensor]:
        return self._ahead() if self.device != "cpu" else self._micro_batches()

    def _micro_batches(self) -> Iterator[Tensor]:
        recipe, context = self.spec.recipe, self.spec.architecture.context
        for step in range(self.start, self.spec.num_steps):
            rows_BT = batch(self.split, seed=self.seed, step=step, batch=recipe.batch, context=context)
            yield from torch.from_numpy(rows_BT).chunk(recipe.accumulate)

    def _ahead(self) -> Iterator[Tensor]:
        """Each micro-batch is on its way to the device while the one before it is computed."""
        moved: Tensor | None = None
        for rows_BT in self._micro_batches():
            coming = rows_BT.pin_memory().to(self.device, non_blocking=True)
            if moved is not None:
                yield moved
            moved = coming
        if moved is not None:
            yield moved
