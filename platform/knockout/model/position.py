"""Where a token stands: what is added to the stream, and what is done to queries and keys.

The invariant: fixed tables are buffers that are never saved; only learned positions have a longest sequence.

Legend: B batch, T tokens, D width, H heads, K head width, P pairs (half a width).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from knockout.declare import parts as declared
from knockout.declare.architecture import Architecture, head_layout

SINUSOIDAL_BASE = 10000.0


@dataclass(frozen=True)
class Positions:
    """`stream` acts on the embedded tokens, `heads` on the queries and keys of every block."""

    stream: nn.Module
    heads: nn.Module


class LearnedPosition(nn.Module):
    """Adds a trained row a position."""

    def __init__(self, context: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(context, width))

    def forward(self, x_BTD: Tensor) -> Tensor:
        """x_BTD with positions added. Raises ValueError for more tokens than there are positions."""
        num_tokens, num_positions = x_BTD.shape[1], self.weight.shape[0]
        if num_tokens > num_positions:
            raise ValueError(f"a sequence of {num_tokens} tokens is longer than the {num_positions} learned positions")
        return x_BTD + self.weight[:num_tokens]


class SinusoidalPosition(nn.Module):
    """Adds sin at even and cos at odd units (Vaswani et al. 2017, section 3.5)."""

    table_TD: Tensor

    def __init__(self, context: int, width: int) -> None:
        super().__init__()
        self.register_buffer("table_TD", sinusoids_TD(context, width=width), persistent=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """x_BTD, of any length, with positions added."""
        num_tokens, width = x_BTD.shape[1:]
        table_TD = self.table_TD[:num_tokens]
        if num_tokens > self.table_TD.shape[0]:
            table_TD = sinusoids_TD(num_tokens, width=width).to(x_BTD)
        return x_BTD + table_TD


class RotaryPosition(nn.Module):
    """Rotates the pairs (k, k + K/2) of every head by position * base^(-2k/K) (Su et al. 2021, equation 34).

    Which units make a pair is a matter of naming: halves, as in GPT-NeoX and Llama, and not neighbours.
    """

    cosines_TK: Tensor
    sines_TK: Tensor

    def __init__(self, context: int, head_width: int, *, base: float) -> None:
        super().__init__()
        self.base = base
        cosines_TK, sines_TK = rotations_TK(context, head_width=head_width, base=base)
        self.register_buffer("cosines_TK", cosines_TK, persistent=False)
        self.register_buffer("sines_TK", sines_TK, persistent=False)

    def forward(self, x_BHTK: Tensor) -> Tensor:
        """Queries or keys, of any length, rotated; the dtype stays."""
        num_tokens, head_width = x_BHTK.shape[-2:]
        cosines_TK, sines_TK = self.cosines_TK[:num_tokens], self.sines_TK[:num_tokens]
        if num_tokens > self.cosines_TK.shape[0]:
            longer = rotations_TK(num_tokens, head_width=head_width, base=self.base)
            cosines_TK, sines_TK = (table_TK.to(self.cosines_TK) for table_TK in longer)
        rotated_BHTK = x_BHTK * cosines_TK + x_BHTK.roll(head_width // 2, dims=-1) * sines_TK
        return rotated_BHTK.to(x_BHTK.dtype)


def rotations_TK(num_tokens: int, *, head_width: int, base: float) -> tuple[Tensor, Tensor]:
    """Factors of a unit and of its partner, float64: (cos, cos) and (-sin, sin) over a head's halves."""
    angles_TP = pair_angles_TP(num_tokens, width=head_width, base=base)
    cosines_TP, sines_TP = angles_TP.cos(), angles_TP.sin()
    return torch.cat((cosines_TP, cosines_TP), dim=-1), torch.cat((-sines_TP, sines_TP), dim=-1)


def pair_angles_TP(num_tokens: int, *, width: int, base: float) -> Tensor:
    """position * base^(-2p/width) in radians, float64, for positions 0 ... num_tokens - 1 and pairs p."""
    frequencies_P = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.outer(torch.arange(num_tokens, dtype=torch.float64), frequencies_P)


def sinusoids_TD(num_tokens: int, *, width: int) -> Tensor:
    """sin(angle) at unit 2p and cos(angle) at unit 2p + 1, float64, in [-1, 1]."""
    angles_TP = pair_angles_TP(num_tokens, width=width, base=SINUSOIDAL_BASE)
    return torch.stack((angles_TP.sin(), angles_TP.cos()), dim=-1).flatten(1)


def build_positions(architecture: Architecture) -> Positions:
    """The positions that the declaration asks for; `heads` is one module that all blocks share."""
    context, width = architecture.context, architecture.width
    match architecture.position:
        case declared.LearnedPosition():
            return Positions(LearnedPosition(context, width), nn.Identity())
        case declared.SinusoidalPosition():
            return Positions(SinusoidalPosition(context, width), nn.Identity())
        case declared.RotaryPosition(base=base):
            layout = head_layout(architecture)
            assert layout is not None, "an Architecture with rotary positions has attention"
            return Positions(nn.Identity(), RotaryPosition(context, layout.head_width, base=base))
        case declared.NoPosition():
            return Positions(nn.Identity(), nn.Identity())
