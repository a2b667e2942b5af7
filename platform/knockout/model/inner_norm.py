"""Norms inside the attention slot, whose input autocast may have rounded.

The invariant: the norm is computed in its gain's dtype, and its output has the input's.
"""

from __future__ import annotations

from torch import Tensor, nn

from knockout.declare.parts.attention import QkNorm

EPS = 1e-6


class InnerRmsNorm(nn.RMSNorm):
    """x / RMS(x) times a gain (Zhang & Sennrich 2019, equation 4)."""

    def __init__(self, width: int) -> None:
        super().__init__(width, eps=EPS)

    def forward(self, x: Tensor) -> Tensor:
        """x, normed over its last axis."""
        return super().forward(x.to(self.weight.dtype)).to(x.dtype)


class InnerLayerNorm(nn.LayerNorm):
    """(x - mean) / deviation times a gain, without a bias (Dehghani et al. 2023, section 2)."""

    def __init__(self, width: int) -> None:
        super().__init__(width, eps=EPS, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        """x, normed over its last axis."""
        return super().forward(input.to(self.weight.dtype)).to(input.dtype)


def build_qk_norm(kind: QkNorm, *, head_width: int) -> nn.Module:
    """The norm of a query or key over its head."""
    match kind:
        case "none":
            return nn.Identity()
        case "rms":
            return InnerRmsNorm(head_width)
        case "layer":
            return InnerLayerNorm(head_width)
