"""One block: a branch in which tokens read one another, and a branch at every position alone.

The invariant: a branch whose slot is `none` is absent together with its norms, its gate and its dropout.

Legend: B batch, T tokens, D width.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import final

import torch
from torch import Tensor, nn

from knockout.declare import parts as declared
from knockout.declare.architecture import Architecture
from knockout.model.attention import build_attention
from knockout.model.cache import LayerCache
from knockout.model.documents import Documents
from knockout.model.feed_forward import build_feed_forward
from knockout.model.head_position import HeadPosition
from knockout.model.norm import build_norm, build_output_norm
from knockout.model.residual import build_join, build_residual
from knockout.model.scores import Prefix


class Block(nn.Module, ABC):
    """The declared branches of one layer; `position` acts on queries, keys and scores, `prefix` on what these see."""

    def __init__(self, architecture: Architecture, *, position: HeadPosition, prefix: Prefix | None = None) -> None:
        super().__init__()
        self.attention = build_attention(architecture, position=position, prefix=prefix)
        self.ffn = build_feed_forward(architecture)
        self.dropout = nn.Dropout(architecture.dropout)
        self.join = build_join(architecture)

    @abstractmethod
    def forward(self, x_BTD: Tensor, *, cache: LayerCache | None = None, documents: Documents | None = None) -> Tensor:
        """The stream before the block to the stream after it; cache and documents are the attention slot's."""

    def new_cache(self, batch: int, *, capacity: int, device: torch.device, dtype: torch.dtype) -> LayerCache | None:
        """An empty cache for the attention slot; None where tokens do not read one another."""
        if self.attention is None:
            return None
        return self.attention.new_cache(batch, capacity=capacity, device=device, dtype=dtype)

    def take_auxiliary_loss(self) -> Tensor | None:
        """The loss that the last forward pass left for the optimiser, once; None where there is none."""
        return None if self.ffn is None else self.ffn.take_auxiliary_loss()

    def _attend(self, x_BTD: Tensor, *, cache: LayerCache | None, documents: Documents | None) -> Tensor:
        assert self.attention is not None
        return self.dropout(self.attention(x_BTD, cache=cache, documents=documents))

    def _feed(self, x_BTD: Tensor) -> Tensor:
        assert self.ffn is not None
        return self.dropout(self.ffn(x_BTD))


class BranchesInTurn(Block):
    """Branches that follow one another, each with norms and a connection of its own."""

    def __init__(self, architecture: Architecture, *, position: HeadPosition, prefix: Prefix | None = None) -> None:
        super().__init__(architecture, position=position, prefix=prefix)
        self.attention_norm = build_norm(architecture, present=self.attention is not None)
        self.attention_output_norm = build_output_norm(architecture, present=self.attention is not None)
        self.attention_residual = build_residual(architecture, present=self.attention is not None)
        self.ffn_norm = build_norm(architecture, present=self.ffn is not None)
        self.ffn_output_norm = build_output_norm(architecture, present=self.ffn is not None)
        self.ffn_residual = build_residual(architecture, present=self.ffn is not None)

    def _join_attention(self, x_BTD: Tensor, *, cache: LayerCache | None, documents: Documents | None) -> Tensor:
        if self.attention is None:
            return x_BTD
        return self.join(
            x_BTD,
            branch=partial(self._attend, cache=cache, documents=documents),
            norm=self.attention_norm,
            output_norm=self.attention_output_norm,
            connect=self.attention_residual,
        )

    def _join_ffn(self, x_BTD: Tensor) -> Tensor:
        if self.ffn is None:
            return x_BTD
        return self.join(
            x_BTD,
            branch=self._feed,
            norm=self.ffn_norm,
            output_norm=self.ffn_output_norm,
            connect=self.ffn_residual,
        )


@final
class SerialBlock(BranchesInTurn):
    """attention, then ffn on its result."""

    def forward(self, x_BTD: Tensor, *, cache: LayerCache | None = None, documents: Documents | None = None) -> Tensor:
        return self._join_ffn(self._join_attention(x_BTD, cache=cache, documents=documents))


@final
class ParallelBlock(Block):
    """attention and ffn on the same input; their sum is one branch, with one norm and one connection."""

    def __init__(self, architecture: Architecture, *, position: HeadPosition, prefix: Prefix | None = None) -> None:
        super().__init__(architecture, position=position, prefix=prefix)
        self.present = self.attention is not None or self.ffn is not None
        self.norm = build_norm(architecture, present=self.present)
        self.output_norm = build_output_norm(architecture, present=self.present)
        self.residual = build_residual(architecture, present=self.present)

    def forward(self, x_BTD: Tensor, *, cache: LayerCache | None = None, documents: Documents | None = None) -> Tensor:
        if not self.present:
            return x_BTD
        branch = partial(self._both, cache=cache, documents=documents)
        return self.join(x_BTD, branch=branch, norm=self.norm, output_norm=self.output_norm, connect=self.residual)

    def _both(self, x_BTD: Tensor, *, cache: LayerCache | None, documents: Documents | None) -> Tensor:
        if self.attention is None:
            return self._feed(x_BTD)
        read_BTD = self._attend(x_BTD, cache=cache, documents=documents)
        return read_BTD if self.ffn is None else read_BTD + self._feed(x_BTD)


def build_block(architecture: Architecture, *, position: HeadPosition, prefix: Prefix | None = None) -> Block:
    """The block of one layer, which `architecture` says as `at_layer` gives it."""
    match architecture.block:
        case declared.SerialBlock():
            return SerialBlock(architecture, position=position, prefix=prefix)
        case declared.ParallelBlock():
            return ParallelBlock(architecture, position=position, prefix=prefix)
