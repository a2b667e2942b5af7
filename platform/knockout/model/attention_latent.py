"""Attention whose keys and values are made from one small vector a token (DeepSeek-AI 2024, "DeepSeek-V2", section 2.1).

The invariant: the small vector and the key's one rotated part are all that is ever cached. A query that meets cached
tokens is taken into the small vector's space instead of expanding them all: the same product in another order (the
paper's section 2.1.2).

Legend: B batch, T tokens, S tokens that can be read, D width, H heads, C the small vector's width (kv_rank), N units of a
head without position, R units with, K = N + R, V value width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from knockout.declare.parts.attention import LatentAttention as Declared
from knockout.model.attention_heads import split_heads
from knockout.model.cache import TokenCache
from knockout.model.documents import Documents
from knockout.model.head_position import HeadPosition
from knockout.model.inner_norm import InnerRmsNorm
from knockout.model.linear import Linear
from knockout.model.mixer import TokenMixer
from knockout.model.scores import ScoreRule, attend


class LatentAttention(TokenMixer[TokenCache]):
    """Multi-head latent attention with a decoupled rotary part (DeepSeek-AI 2024, equations 37 - 47)."""

    def __init__(
        self,
        width: int,
        *,
        declared: Declared,
        num_heads: int,
        rule: ScoreRule,
        bias: bool,
        dropout: float,
        position: HeadPosition,
    ) -> None:
        super().__init__()
        self.declared, self.num_heads = declared, num_heads
        self.rule, self.dropout, self.position = rule, dropout, position
        rank, rope_width = declared.kv_rank, declared.rope_width
        query_width = num_heads * (declared.nope_width + rope_width)
        self.query = _build_query(width, query_width, rank=declared.q_rank, bias=bias)
        self.kv_down = Linear(width, rank + rope_width, bias=bias)
        self.kv_norm = InnerRmsNorm(rank)
        self.kv_up = Linear(rank, num_heads * (declared.nope_width + declared.value_width), bias=False)
        self.output = Linear(num_heads * declared.value_width, width, bias=bias)

    def forward(self, x_BTD: Tensor, *, cache: TokenCache | None = None, documents: Documents | None = None) -> Tensor:
        """x_BTD to what each token has read, y_BTD."""
        offset = 0 if cache is None else cache.length
        nope_width, rope_width = self.declared.nope_width, self.declared.rope_width
        query_BHTK = split_heads(self.query(x_BTD), head_width=nope_width + rope_width)
        nope_BHTN, rope_BHTR = query_BHTK.split((nope_width, rope_width), dim=-1)
        rope_BHTR = self.position(rope_BHTR, offset=offset)
        latent_BTC, rope_BTR = self.kv_down(x_BTD).split((self.declared.kv_rank, rope_width), dim=-1)
        latent_BSC, key_BSR = self.kv_norm(latent_BTC), self.position(rope_BTR.unsqueeze(1), offset=offset).squeeze(1)
        if cache is not None:
            latent_BSC, key_BSR = cache.extend(latent_BSC, key_BSR)
        read = self._read if offset == 0 else self._read_latents
        read_BHTV = read(nope_BHTN, rope_BHTR, latent_BSC=latent_BSC, key_BSR=key_BSR, documents=documents)
        return self.output(read_BHTV.transpose(1, 2).flatten(2))

    def new_cache(self, batch: int, *, capacity: int, device: torch.device, dtype: torch.dtype) -> TokenCache:
        """The small vector, normed, and the key's rotated part of every token."""
        shapes = (batch, self.declared.kv_rank), (batch, self.declared.rope_width)
        return TokenCache(*shapes, capacity=capacity, device=device, dtype=dtype)

    def _read(
        self,
        nope_BHTN: Tensor,
        rope_BHTR: Tensor,
        *,
        latent_BSC: Tensor,
        key_BSR: Tensor,
        documents: Documents | None,
    ) -> Tensor:
        """Keys and values of every head, expanded."""
        widths = self.declared.nope_width, self.declared.value_width
        nope_BHSN, value_BHSV = split_heads(self.kv_up(latent_BSC), head_width=sum(widths)).split(widths, dim=-1)
        rope_BHSR = key_BSR.unsqueeze(1).expand(-1, self.num_heads, -1, -1)
        query_BHTK = torch.cat((nope_BHTN, rope_BHTR), dim=-1)
        key_BHSK = torch.cat((nope_BHSN, rope_BHSR.to(nope_BHSN.dtype)), dim=-1)
        return self._attend(query_BHTK, key_BHSK, value_BHSV, documents=documents)

    def _read_latents(
        self,
        nope_BHTN: Tensor,
        rope_BHTR: Tensor,
        *,
        latent_BSC: Tensor,
        key_BSR: Tensor,
        documents: Documents | None,
    ) -> Tensor:
        """One key and one value for all heads: q (W c) = (q W) c."""
        up_HUC = self.kv_up.weight.unflatten(0, (self.num_heads, -1))
        key_HNC, value_HVC = up_HUC.split((self.declared.nope_width, self.declared.value_width), dim=1)
        query_BHTK = torch.cat((nope_BHTN @ key_HNC, rope_BHTR), dim=-1)
        key_BGSK = torch.cat((latent_BSC, key_BSR), dim=-1).unsqueeze(1)
        read_BHTC = self._attend(query_BHTK, key_BGSK, latent_BSC.unsqueeze(1), documents=documents)
        return read_BHTC @ value_HVC.transpose(1, 2)

    def _attend(self, query_BHTK: Tensor, key_BGSK: Tensor, value_BGSV: Tensor, *, documents: Documents | None) -> Tensor:
        dropout, bias = self.dropout if self.training else 0.0, self.position.score_bias
        inputs = query_BHTK, key_BGSK, value_BGSV
        return attend(*inputs, rule=self.rule, bias=bias, dropout=dropout, documents=documents)


def _build_query(width: int, query_width: int, *, rank: int | None, bias: bool) -> nn.Module:
    if rank is None:
        return Linear(width, query_width, bias=False)
    return LowRankQuery(width, query_width, rank=rank, bias=bias)


class LowRankQuery(nn.Module):
    """Queries through a small normed vector (DeepSeek-AI 2024, equations 37 and 38)."""

    def __init__(self, width: int, query_width: int, *, rank: int, bias: bool) -> None:
        super().__init__()
        self.reduce = Linear(width, rank, bias=bias)
        self.norm = InnerRmsNorm(rank)
        self.expand = Linear(rank, query_width, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """x_BTD to the queries of all heads."""
        return self.expand(self.norm(self.reduce(x_BTD)))
