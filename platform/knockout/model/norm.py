"""Normalisation of every token, and where a block applies it.

The invariant: where there is no normalisation stands an identity with no parameters.

Legend: D width; the leading axes are free.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from knockout.declare import parts as declared
from knockout.declare.architecture import Architecture


class DynamicTanh(nn.Module):
    """weight * tanh(alpha x) + bias with one learned alpha (Zhu et al. 2025, equation 2)."""

    def __init__(self, width: int, *, alpha: float, bias: bool) -> None:
        super().__init__()
        self.start = alpha
        self.alpha = nn.Parameter(torch.empty(1))
        self.weight = nn.Parameter(torch.empty(width))
        self.bias = nn.Parameter(torch.empty(width)) if bias else None

    def forward(self, x_D: Tensor) -> Tensor:
        """x_D to y_D, each unit alone."""
        y_D = self.weight * torch.tanh(self.alpha * x_D)
        return y_D if self.bias is None else y_D + self.bias

    def first_value(self, name: str, *, generator: torch.Generator) -> Tensor | None:
        """The declared alpha; gain and bias as in every norm."""
        return torch.full((1,), self.start) if name == "alpha" else None


def build_norm(architecture: Architecture, *, present: bool = True) -> nn.Module:
    """One fresh norm of the declared kind, over the width; an identity where its branch is absent."""
    width, bias = architecture.width, architecture.bias
    if not present:
        return nn.Identity()
    match architecture.norm:
        case declared.LayerNorm(eps=eps):
            return nn.LayerNorm(width, eps=eps, bias=bias)
        case declared.RmsNorm(eps=eps):
            return nn.RMSNorm(width, eps=eps)
        case declared.DynamicTanhNorm(alpha=alpha):
            return DynamicTanh(width, alpha=alpha, bias=bias)
        case declared.NoNorm():
            return nn.Identity()


def build_output_norm(architecture: Architecture, *, present: bool = True) -> nn.Module:
    """The second norm of a branch, on its output: for sandwich placement only."""
    match architecture.norm:
        case declared.PlacedNorm(placement="sandwich"):
            return build_norm(architecture, present=present)
        case _:
            return nn.Identity()


def build_final_norm(architecture: Architecture) -> nn.Module:
    """The norm before the head: not for post placement, where the last block has normalised its output."""
    match architecture.norm:
        case declared.PlacedNorm(placement="post"):
            return nn.Identity()
        case _:
            return build_norm(architecture)
