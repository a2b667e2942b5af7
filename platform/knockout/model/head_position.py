"""What position does inside attention.

The invariant: one module serves all blocks, and holds no parameters.

Legend: B batch, T queries, S keys, H heads, K head width.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class HeadPosition(nn.Module):
    """Acts on queries, keys and scores; this one leaves them as they are."""

    score_factor: float = 1.0
    """The scores are multiplied by it."""

    def forward(self, x_BHTK: Tensor, *, offset: int = 0) -> Tensor:
        """Queries or keys, the first of which stands at position `offset`, with their positions in them."""
        return x_BHTK

    def score_bias(self, num_queries: int, num_keys: int, *, like: Tensor) -> Tensor | None:
        """What is added to the scores, bias_HTS, where the last query stands with the last key; None for nothing."""
        return None


class AlibiPosition(HeadPosition):
    """Adds -slope * distance to the scores, at each head's own slope (Press et al. 2022, section 3)."""

    slopes_H: Tensor

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.register_buffer("slopes_H", torch.tensor(alibi_slopes(num_heads), dtype=torch.float64), persistent=False)

    def score_bias(self, num_queries: int, num_keys: int, *, like: Tensor) -> Tensor | None:
        """Without a mask, later keys are as far as earlier ones."""
        distance_TS = distances_TS(num_queries, num_keys, device=like.device).abs()
        return (-self.slopes_H[:, None, None] * distance_TS).to(like.dtype)


def alibi_slopes(num_heads: int) -> list[float]:
    """2^(-8h/n) for heads h = 1 ... n when n is a power of two (Press et al. 2022, section 3).

    For other n, those of the next smaller power of two, then every second one of the next larger (their released code,
    `get_slopes`).
    """
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = [2 ** (-8 * head / power) for head in range(1, power + 1)]
    between = [2 ** (-4 * head / power) for head in range(1, 2 * power + 1, 2)]
    return slopes + between[: num_heads - power]


def distances_TS(num_queries: int, num_keys: int, *, device: torch.device) -> Tensor:
    """How many tokens a key stands before a query, where the last of both are one token; later keys are negative."""
    queries_T = torch.arange(num_keys - num_queries, num_keys, device=device)
    return queries_T[:, None] - torch.arange(num_keys, device=device)
