"""One block: a branch in which tokens read one another, then a branch at every position alone.

The invariant: a branch whose slot is `none` is absent together with its norm and its dropout.

Legend: B batch, T tokens, D width.
"""

from __future__ import annotations

from torch import Tensor, nn

from knockout.declare.architecture import Architecture
from knockout.model.attention import build_attention
from knockout.model.feed_forward import build_feed_forward
from knockout.model.norm import build_norm
from knockout.model.residual import build_join


class Block(nn.Module):
    """attention, then ffn, each joined to the stream as declared; `rotate` acts on queries and keys."""

    def __init__(self, architecture: Architecture, *, rotate: nn.Module) -> None:
        super().__init__()
        self.attention = build_attention(architecture, rotate=rotate)
        self.attention_norm = nn.Identity() if self.attention is None else build_norm(architecture)
        self.ffn = build_feed_forward(architecture)
        self.ffn_norm = nn.Identity() if self.ffn is None else build_norm(architecture)
        self.dropout = nn.Dropout(architecture.dropout)
        self.join = build_join(architecture)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """The stream before the block to the stream after it."""
        if self.attention is not None:
            x_BTD = self.join(x_BTD, branch=self._attend, norm=self.attention_norm)
        if self.ffn is not None:
            x_BTD = self.join(x_BTD, branch=self._feed, norm=self.ffn_norm)
        return x_BTD

    def take_auxiliary_loss(self) -> Tensor | None:
        """The loss that the last forward pass left for the optimiser, once; None where there is none."""
        return None if self.ffn is None else self.ffn.take_auxiliary_loss()

    def _attend(self, x_BTD: Tensor) -> Tensor:
        assert self.attention is not None
        return self.dropout(self.attention(x_BTD))

    def _feed(self, x_BTD: Tensor) -> Tensor:
        assert self.ffn is not None
        return self.dropout(self.ffn(x_BTD))
