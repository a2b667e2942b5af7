"""Attention whose queries, keys and values are one projection.

The invariant: values are that projection before norm and position, so it alone is cached, and keys are made from it.

Legend: B batch, T tokens, S tokens that can be read, D width, H heads, K head width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from knockout.declare.parts.attention import QkNorm
from knockout.model.attention_heads import split_heads
from knockout.model.cache import TokenCache
from knockout.model.documents import Documents
from knockout.model.head_position import HeadPosition
from knockout.model.inner_norm import build_qk_norm
from knockout.model.linear import Linear
from knockout.model.mixer import TokenMixer
from knockout.model.scores import ScoreRule, attend


class SharedAttention(TokenMixer[TokenCache]):
    """softmax(P P^T / sqrt(K)) P in every head, with P = x W, then one map."""

    def __init__(
        self,
        width: int,
        *,
        num_heads: int,
        rule: ScoreRule,
        qk_norm: QkNorm,
        bias: bool,
        dropout: float,
        position: HeadPosition,
    ) -> None:
        super().__init__()
        self.head_width, self.num_heads = width // num_heads, num_heads
        self.rule, self.dropout, self.position = rule, dropout, position
        self.shared = Linear(width, width, bias=bias)
        self.output = Linear(width, width, bias=bias)
        self.query_norm = build_qk_norm(qk_norm, head_width=self.head_width)
        self.key_norm = build_qk_norm(qk_norm, head_width=self.head_width)

    def forward(self, x_BTD: Tensor, *, cache: TokenCache | None = None, documents: Documents | None = None) -> Tensor:
        """x_BTD to what each token has read, y_BTD."""
        offset = 0 if cache is None else cache.length
        new_BHTK = split_heads(self.shared(x_BTD), head_width=self.head_width)
        (shared_BHSK,) = (new_BHTK,) if cache is None else cache.extend(new_BHTK)
        query_BHTK = self.position(self.query_norm(new_BHTK), offset=offset)
        key_BHSK = self.position(self.key_norm(shared_BHSK))
        dropout = self.dropout if self.training else 0.0
        bias = self.position.score_bias
        inputs = query_BHTK, key_BHSK, shared_BHSK
        read_BHTK = attend(*inputs, rule=self.rule, bias=bias, dropout=dropout, documents=documents)
        return self.output(read_BHTK.transpose(1, 2).flatten(2))

    def new_cache(self, batch: int, *, capacity: int, device: torch.device, dtype: torch.dtype) -> TokenCache:
        """The projection of every token."""
        shape = (batch, self.num_heads, self.head_width)
        return TokenCache(shape, capacity=capacity, device=device, dtype=dtype)
