"""The whole network: embedding, positions, blocks, final norm, head.

The invariant: a parameter's name says where it stands (`blocks.3.attention.query.weight`) and does not depend
on what the other slots hold.

Legend: B batch, T tokens, D width, V vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from knockout.declare.architecture import Architecture
from knockout.model.block import Block
from knockout.model.embedding import build_embedding, build_head
from knockout.model.initialise import initialise
from knockout.model.norm import build_final_norm
from knockout.model.position import build_positions


class Prediction(NamedTuple):
    """What the network says about every next token, and what its parts ask of the optimiser."""

    logits_BTV: Tensor
    auxiliary_loss: Tensor
    """Scalar, to be added to the training loss: the mixtures' weighted balance losses, 0 without any."""


class Network(nn.Module):
    """A decoder-only language model; make one with `build`."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        positions = build_positions(architecture)
        self.architecture = architecture
        self.embedding = build_embedding(architecture)
        self.position = positions.stream
        self.dropout = nn.Dropout(architecture.dropout)
        self.blocks = nn.ModuleList(Block(architecture, rotate=positions.heads) for _ in range(architecture.depth))
        self.norm = build_final_norm(architecture)
        self.head = build_head(architecture)

    def forward(self, tokens_BT: Tensor) -> Prediction:
        """tokens_BT (int64, 0 ... V - 1) to the prediction of the token after each.

        Raises ValueError for more tokens than there are learned positions. Dropout, where declared and in
        training mode, draws from torch's global generator.
        """
        x_BTD = self.dropout(self.position(self.embedding(tokens_BT)))
        for block in self.blocks:
            x_BTD = block(x_BTD)
        logits_BTV = self.head(self.norm(x_BTD), self.embedding.weight)
        return Prediction(logits_BTV, self._take_auxiliary_loss())

    def _take_auxiliary_loss(self) -> Tensor:
        total = self.embedding.weight.new_zeros(())
        for block in self.blocks:
            loss = cast("Block", block).take_auxiliary_loss()
            total = total if loss is None else total + loss
        return total


def build(architecture: Architecture, *, seed: int, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Network:
    """A network with its first weights, decided by `architecture` and `seed` alone; on "meta" without."""
    if device == "meta":
        with torch.device("meta"):
            return Network(architecture).to(dtype=dtype)
    network = Network(architecture)
    initialise(network, architecture=architecture, seed=seed)
    return network.to(device=device, dtype=dtype)
