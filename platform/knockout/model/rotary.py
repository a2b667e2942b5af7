"""Rotary positions, and how their angles are stretched to longer contexts.

The invariant: a scaling changes angles and the scores' factor alone, and no weight, so it can be given to a network
that was trained without.

Legend: B batch, T tokens, H heads, K head width, P pairs (half a width).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from knockout.declare import parts as declared
from knockout.declare.parts import RotaryScaling
from knockout.model.head_position import HeadPosition


class RotaryPosition(HeadPosition):
    """Rotates the pairs (k, k + K/2) of every head by position * frequency (Su et al. 2021, equation 34).

    Which units make a pair is a matter of naming: halves, as in GPT-NeoX and Llama, and not neighbours.
    """

    cosines_TK: Tensor
    sines_TK: Tensor

    def __init__(self, context: int, head_width: int, *, base: float, scaling: RotaryScaling) -> None:
        super().__init__()
        self.score_factor = 1.0 / temperature(scaling)
        self.frequencies_P = scaled_frequencies_P(head_width, base=base, scaling=scaling)
        cosines_TK, sines_TK = rotations_TK(context, frequencies_P=self.frequencies_P)
        self.register_buffer("cosines_TK", cosines_TK, persistent=False)
        self.register_buffer("sines_TK", sines_TK, persistent=False)

    def forward(self, x_BHTK: Tensor, *, offset: int = 0) -> Tensor:
        """Queries or keys, of any length, rotated; the first stands at position `offset`. The dtype stays."""
        num_tokens, head_width = x_BHTK.shape[-2:]
        end = offset + num_tokens
        cosines_TK, sines_TK = self.cosines_TK[offset:end], self.sines_TK[offset:end]
        if end > self.cosines_TK.shape[0]:
            longer = rotations_TK(num_tokens, frequencies_P=self.frequencies_P, offset=offset)
            cosines_TK, sines_TK = (table_TK.to(self.cosines_TK) for table_TK in longer)
        rotated_BHTK = x_BHTK * cosines_TK + x_BHTK.roll(head_width // 2, dims=-1) * sines_TK
        return rotated_BHTK.to(x_BHTK.dtype)


def rotations_TK(num_tokens: int, *, frequencies_P: Tensor, offset: int = 0) -> tuple[Tensor, Tensor]:
    """Factors of a unit and of its partner, float64: (cos, cos) and (-sin, sin) over a head's halves."""
    angles_TP = pair_angles_TP(num_tokens, frequencies_P=frequencies_P, offset=offset)
    cosines_TP, sines_TP = angles_TP.cos(), angles_TP.sin()
    return torch.cat((cosines_TP, cosines_TP), dim=-1), torch.cat((-sines_TP, sines_TP), dim=-1)


def pair_angles_TP(num_tokens: int, *, frequencies_P: Tensor, offset: int = 0) -> Tensor:
    """position * frequency in radians, float64, for positions offset ... offset + num_tokens - 1 and pairs p."""
    positions_T = torch.arange(offset, offset + num_tokens, dtype=torch.float64, device=frequencies_P.device)
    return torch.outer(positions_T, frequencies_P)


def pair_frequencies_P(width: int, *, base: float) -> Tensor:
    """base^(-2p/width) radians a position, float64, for pairs p = 0 ... width/2 - 1."""
    return base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)


def scaled_frequencies_P(width: int, *, base: float, scaling: RotaryScaling) -> Tensor:
    """The frequencies that a scaling makes of `pair_frequencies_P`."""
    frequencies_P = pair_frequencies_P(width, base=base)
    match scaling:
        case declared.NoScaling():
            return frequencies_P
        case declared.LinearScaling(factor=factor):
            return frequencies_P / factor
        case declared.NtkScaling(factor=factor):
            # Peng et al. 2023, equation 16: the slowest pair turns 1/factor as fast, the fastest as before.
            return pair_frequencies_P(width, base=base * factor ** (width / (width - 2)))
        case declared.YarnScaling():
            return _yarn_P(frequencies_P, yarn=scaling)


def temperature(scaling: RotaryScaling) -> float:
    """What the scores are divided by (Peng et al. 2023, equation 22); 1 but for YaRN."""
    match scaling:
        case declared.YarnScaling(temperature=float(given)):
            return given
        case declared.YarnScaling(factor=factor):
            return (0.1 * math.log(factor) + 1.0) ** -2
        case _:
            return 1.0


def _yarn_P(frequencies_P: Tensor, *, yarn: declared.YarnScaling) -> Tensor:
    # Peng et al. 2023, equations 17 - 20: r is how often a pair turns within the context of training.
    turns_P = yarn.original_context * frequencies_P / (2 * math.pi)
    kept_P = ((turns_P - yarn.beta_slow) / (yarn.beta_fast - yarn.beta_slow)).clamp(0.0, 1.0)
    return (1 - kept_P) * frequencies_P / yarn.factor + kept_P * frequencies_P
