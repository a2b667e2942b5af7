"""Feed-forward parts as linear maps with something between them.

The invariant: the same two classes serve a dense part (`Linear` maps) and a set of experts (`ExpertLinear`
maps); the last map is always called `down`.

Legend: D width, F hidden width; the leading axes are free.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from knockout.declare.parts import DenseKind

MakeLinear = Callable[[int, int], nn.Module]
"""(inputs, outputs) -> a linear map."""


class FeedForward(nn.Module):
    """Maps x_D to y_D at every position alone."""

    def take_auxiliary_loss(self) -> Tensor | None:
        """The loss that the last forward pass left for the optimiser, once; None for parts that have none."""
        return None


class TwoMaps(FeedForward):
    """activation(x W_up) W_down."""

    def __init__(self, *, up: nn.Module, down: nn.Module, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.up, self.down, self.activation = up, down, activation

    def forward(self, x_D: Tensor) -> Tensor:
        """x_D to y_D."""
        return self.down(self.activation(self.up(x_D)))


class GatedMaps(FeedForward):
    """(activation(x W_gate) * x W_up) W_down (Shazeer 2020, equation 6)."""

    def __init__(self, *, gate: nn.Module, up: nn.Module, down: nn.Module, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.gate, self.up, self.down, self.activation = gate, up, down, activation

    def forward(self, x_D: Tensor) -> Tensor:
        """x_D to y_D."""
        return self.down(self.activation(self.gate(x_D)) * self.up(x_D))


def identity(x: Tensor) -> Tensor:
    """No activation."""
    return x


def squared_relu(x: Tensor) -> Tensor:
    """max(0, x)^2 (So et al. 2021, "Primer", section 4)."""
    return F.relu(x).square()


def build_maps(kind: DenseKind, *, width: int, hidden: int, make_linear: MakeLinear) -> FeedForward:
    """The maps of one dense kind, over `width` and `hidden` units."""
    up, down = make_linear(width, hidden), make_linear(hidden, width)
    match kind:
        case "gelu":
            return TwoMaps(up=up, down=down, activation=F.gelu)
        case "gelu_tanh":
            return TwoMaps(up=up, down=down, activation=partial(F.gelu, approximate="tanh"))
        case "relu":
            return TwoMaps(up=up, down=down, activation=F.relu)
        case "squared_relu":
            return TwoMaps(up=up, down=down, activation=squared_relu)
        case "linear":
            return TwoMaps(up=up, down=down, activation=identity)
        case "swiglu":
            return GatedMaps(gate=make_linear(width, hidden), up=up, down=down, activation=F.silu)
        case "geglu":
            return GatedMaps(gate=make_linear(width, hidden), up=up, down=down, activation=F.gelu)
