"""Tokens to vectors, and vectors to logits.

The invariant: a tied table is one parameter under one name; the head never holds a second copy of it.

Legend: B batch, T tokens, D width, V vocabulary.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from knockout.declare import parts as declared
from knockout.declare.architecture import Architecture
from knockout.model.kernels import linear


class TokenEmbedding(nn.Module):
    """Looks up a row a token, times a fixed scale."""

    def __init__(self, vocabulary: int, width: int, *, scale: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary, width))
        self.scale = scale

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """tokens_BT to x_BTD."""
        x_BTD = F.embedding(tokens_BT, self.weight)
        return x_BTD if self.scale == 1.0 else x_BTD * self.scale


class MaskableEmbedding(TokenEmbedding):
    """Also knows the mask, whose id is the one after the vocabulary's last, by a vector that no head reads."""

    def __init__(self, vocabulary: int, width: int, *, scale: float) -> None:
        super().__init__(vocabulary, width, scale=scale)
        self.mask = nn.Parameter(torch.empty(1, width))

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """tokens_BT, masks among them, to x_BTD."""
        num_tokens = self.weight.shape[0]
        x_BTD = super().forward(tokens_BT.clamp(max=num_tokens - 1))
        return torch.where((tokens_BT == num_tokens).unsqueeze(-1), self.mask * self.scale, x_BTD)


class TiedHead(nn.Module):
    """Logits as products with the embedding's rows (Press & Wolf 2017)."""

    def forward(self, x_BTD: Tensor, table_VD: Tensor) -> Tensor:
        """x_BTD and the embedding's table_VD to logits_BTV."""
        return linear(x_BTD, table_VD)


class UntiedHead(nn.Module):
    """Logits as products with rows of its own; the embedding's are not used."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary, width))

    def forward(self, x_BTD: Tensor, table_VD: Tensor) -> Tensor:
        """x_BTD to logits_BTV."""
        return linear(x_BTD, self.weight)


def build_embedding(architecture: Architecture) -> TokenEmbedding:
    """The embedding that the declaration asks for; a frozen one's table takes no gradient, and a mask's vector does."""
    scale = math.sqrt(architecture.width) if architecture.embedding.scaled else 1.0
    masked = isinstance(architecture.objective, declared.MaskedObjective)
    make = MaskableEmbedding if masked else TokenEmbedding
    embedding = make(architecture.vocabulary, architecture.width, scale=scale)
    match architecture.embedding:
        case declared.LearnedEmbedding():
            return embedding
        case declared.FrozenEmbedding():
            embedding.weight.requires_grad_(False)
            return embedding


def build_head(architecture: Architecture) -> TiedHead | UntiedHead:
    """The head that the declaration asks for."""
    match architecture.head:
        case declared.TiedHead():
            return TiedHead()
        case declared.UntiedHead():
            return UntiedHead(architecture.vocabulary, architecture.width)
