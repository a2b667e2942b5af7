"""What is measured inside the network on a step that is evaluated: gradients, activations and updates, by layer.

The invariant: a probe reads; it changes neither values nor random streams, and on other steps it costs nothing. What it
reads is that of all ranks, so they measure at the same steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from knockout.training.ranks import Ranks


def mean_square(x: Tensor) -> Tensor:
    """The mean square, a scalar."""
    return x.detach().float().pow(2).mean()


def norm(tensors: Iterable[Tensor]) -> float:
    """Euclidean norm over several tensors, as one vector."""
    total = sum(x.detach().double().pow(2).sum().item() for x in tensors)
    return math.sqrt(total)


class Probes:
    """Arm before a step's forward pass, read after its optimizer step."""

    def __init__(self, blocks: nn.ModuleList, *, ranks: Ranks) -> None:
        self.blocks = blocks
        self.ranks = ranks
        self.values: dict[str, float] = {}
        self.hooks: list[torch.utils.hooks.RemovableHandle] = []
        self.before: list[list[Tensor]] = []

    @property
    def armed(self) -> bool:
        """Whether the current step is measured."""
        return bool(self.hooks)

    def arm(self) -> None:
        """Measure the activations of the coming forward pass."""
        for index, block in enumerate(self.blocks):
            self.hooks.append(block.register_forward_hook(self._activation(index)))

    def gradients(self) -> None:
        """Read gradient norms, before clipping, and remember the weights."""
        for index, block in enumerate(self.blocks):
            parameters = list(block.parameters())
            grads = [p.grad for p in parameters if p.grad is not None]
            self.values[f"gradient_norm/block.{index:02d}"] = self._norm(grads)
            self.before.append([p.detach().clone() for p in parameters])

    def updates(self) -> dict[str, float]:
        """Read the relative size of the update, disarm, and give everything measured in this step."""
        for index, (block, before) in enumerate(zip(self.blocks, self.before, strict=False)):
            weight = self._norm(before)
            change = self._norm(new.detach() - old for new, old in zip(block.parameters(), before, strict=True))
            self.values[f"update_ratio/block.{index:02d}"] = change / weight if weight else 0.0
        values, self.values = self.values, {}
        self.disarm()
        return values

    def disarm(self) -> None:
        """Remove every hook and forget the weights."""
        for hook in self.hooks:
            hook.remove()
        self.hooks.clear()
        self.before.clear()

    def _activation(self, index: int):
        def hook(_module: nn.Module, _inputs: object, output: Tensor | tuple[Tensor, ...]) -> None:
            x = output if isinstance(output, Tensor) else output[0]
            self.values[f"activation_rms/block.{index:02d}"] = self.ranks.mean(mean_square(x)).sqrt().item()

        return hook

    def _norm(self, tensors: Iterable[Tensor]) -> float:
        return norm(map(self.ranks.whole, tensors))
