"""How a branch, its norms and the stream join.

The invariant: joining holds no parameters but ReZero's one number a branch, so leaving the connection out changes no
count.

Legend: B batch, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn

from knockout.declare import parts as declared
from knockout.declare.architecture import Architecture

Map = Callable[[Tensor], Tensor]
"""x_BTD -> y_BTD."""

Connect = Callable[[Tensor, Tensor], Tensor]
"""(x_BTD, branch_BTD) -> x_BTD."""


class Join(Protocol):
    """Runs one branch of a block on the stream."""

    def __call__(self, x_BTD: Tensor, *, branch: Map, norm: Map, output_norm: Map, connect: Connect) -> Tensor:
        """x_BTD to x_BTD."""
        ...


class Scaled(nn.Module):
    """kept * x + added * f(x), two fixed numbers."""

    def __init__(self, *, kept: float = 1.0, added: float = 1.0) -> None:
        super().__init__()
        self.kept, self.added = kept, added

    def forward(self, x_BTD: Tensor, branch_BTD: Tensor) -> Tensor:
        """x_BTD and what the branch made of it to the next x_BTD."""
        return self.kept * x_BTD + self.added * branch_BTD


class Add(nn.Module):
    """x + f(x)."""

    def forward(self, x_BTD: Tensor, branch_BTD: Tensor) -> Tensor:
        """x_BTD and what the branch made of it to the next x_BTD."""
        return x_BTD + branch_BTD


class Replace(nn.Module):
    """f(x)."""

    def forward(self, x_BTD: Tensor, branch_BTD: Tensor) -> Tensor:
        """What the branch made of x_BTD."""
        return branch_BTD


class Gated(nn.Module):
    """x + g f(x) with a learned number g (Bachlechner et al. 2020, equation 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.empty(1))

    def forward(self, x_BTD: Tensor, branch_BTD: Tensor) -> Tensor:
        """x_BTD and what the branch made of it to the next x_BTD."""
        return x_BTD + self.gate.to(branch_BTD.dtype) * branch_BTD

    def first_value(self, name: str, *, generator: torch.Generator) -> Tensor:
        """0, so that every block begins as the identity."""
        return torch.zeros(1)


def build_join(architecture: Architecture) -> Join:
    """Norms before and after the branch (pre, sandwich, or none at all) or after the connection (post)."""
    match architecture.norm:
        case declared.PlacedNorm(placement="post"):
            return _norm_last
        case _:
            return _norm_first


def build_residual(architecture: Architecture, *, present: bool = True) -> nn.Module:
    """What becomes of a branch's input once its output is there; nothing where the branch is absent."""
    if not present:
        return Add()
    match architecture.residual:
        case declared.PlainResidual():
            return Add()
        case declared.NoResidual():
            return Replace()
        case declared.ScaledResidual(alpha=alpha):
            return Scaled(added=alpha)
        case declared.DeepnormResidual():
            return Scaled(kept=declared.deepnorm_alpha(depth=architecture.depth))
        case declared.RezeroResidual():
            return Gated()


def _norm_first(x_BTD: Tensor, *, branch: Map, norm: Map, output_norm: Map, connect: Connect) -> Tensor:
    return connect(x_BTD, output_norm(branch(norm(x_BTD))))


def _norm_last(x_BTD: Tensor, *, branch: Map, norm: Map, output_norm: Map, connect: Connect) -> Tensor:
    return norm(connect(x_BTD, branch(x_BTD)))
