"""Attention in plain heads: multi-head, single head, grouped, and any of them within a window.

The invariant: every softmax over scores goes through `attend`, so the mask is a setting and never a tensor that a part
could forget.

Legend: B batch, T tokens, S tokens that can be read, D width, H query heads, G key/value heads, K head width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from knockout.declare.architecture import HeadLayout
from knockout.declare.parts.attention import QkNorm
from knockout.model.cache import TokenCache, WindowCache
from knockout.model.documents import Documents
from knockout.model.head_position import HeadPosition
from knockout.model.inner_norm import build_qk_norm
from knockout.model.linear import Linear
from knockout.model.mixer import TokenMixer
from knockout.model.scores import ScoreRule, attend


class Attention(TokenMixer[TokenCache | WindowCache]):
    """softmax(Q K^T / sqrt(K)) V in every head, then one map (Vaswani et al. 2017, equation 1)."""

    def __init__(
        self,
        width: int,
        *,
        layout: HeadLayout,
        rule: ScoreRule,
        qk_norm: QkNorm,
        bias: bool,
        dropout: float,
        position: HeadPosition,
    ) -> None:
        super().__init__()
        query_width = layout.num_heads * layout.head_width
        kv_width = layout.num_kv_heads * layout.head_width
        self.layout, self.rule, self.dropout, self.position = layout, rule, dropout, position
        self.query = Linear(width, query_width, bias=bias)
        self.key = Linear(width, kv_width, bias=bias)
        self.value = Linear(width, kv_width, bias=bias)
        self.output = Linear(query_width, width, bias=bias)
        self.query_norm = build_qk_norm(qk_norm, head_width=layout.head_width)
        self.key_norm = build_qk_norm(qk_norm, head_width=layout.head_width)

    def forward(
        self, x_BTD: Tensor, *, cache: TokenCache | WindowCache | None = None, documents: Documents | None = None
    ) -> Tensor:
        """x_BTD to what each token has read, y_BTD."""
        offset = 0 if cache is None else cache.length
        query_BHTK = self.position(self.query_norm(self._heads(self.query(x_BTD))), offset=offset)
        key_BGSK = self.position(self.key_norm(self._heads(self.key(x_BTD))), offset=offset)
        value_BGSK = self._heads(self.value(x_BTD))
        if cache is not None:
            key_BGSK, value_BGSK = cache.extend(key_BGSK, value_BGSK)
        dropout = self.dropout if self.training else 0.0
        bias = self.position.score_bias
        inputs = query_BHTK, key_BGSK, value_BGSK
        read_BHTK = attend(*inputs, rule=self.rule, bias=bias, dropout=dropout, documents=documents)
        return self.output(read_BHTK.transpose(1, 2).flatten(2))

    def new_cache(self, batch: int, *, capacity: int, device: torch.device, dtype: torch.dtype) -> TokenCache | WindowCache:
        """Keys and values of every token, or of those in the window."""
        shape = (batch, self.layout.num_kv_heads, self.layout.head_width)
        if self.rule.window is None:
            return TokenCache(shape, shape, capacity=capacity, device=device, dtype=dtype)
        return WindowCache(shape, shape, window=min(self.rule.window, capacity), device=device, dtype=dtype)

    def _heads(self, x_BTD: Tensor) -> Tensor:
        return split_heads(x_BTD, head_width=self.layout.head_width)


def split_heads(x_BTD: Tensor, *, head_width: int) -> Tensor:
    """x_BTD to x_BHTK."""
    return x_BTD.unflatten(-1, (-1, head_width)).transpose(1, 2)
