"""Attention without a softmax: what is read is a state that every token is added to.

The invariant: cost grows with the number of tokens and not with its square; between chunks of tokens only the state
is carried, and chunks are all formed at once.

Legend: B batch, T tokens, N chunks, C tokens of a chunk, H heads, K head width (of keys and of values, V).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from knockout.model.attention_heads import split_heads
from knockout.model.cache import StateCache
from knockout.model.documents import Chunks, Documents, chunks_of
from knockout.model.head_position import HeadPosition
from knockout.model.linear import Linear
from knockout.model.mixer import TokenMixer
from knockout.model.precision import exact_products
from knockout.model.scan import linear_recurrence


class LinearAttention(TokenMixer[StateCache]):
    """phi(q) sum(phi(k) v^T) / phi(q) sum(phi(k)) in every head (Katharopoulos et al. 2020, equations 5 and 9 - 12).

    Rotary positions turn phi(q) and phi(k) above the line and not below it (Su et al. 2021, equation 19).
    """

    def __init__(self, width: int, *, num_heads: int, causal: bool, chunk: int, bias: bool, position: HeadPosition) -> None:
        super().__init__()
        self.head_width, self.num_heads = width // num_heads, num_heads
        self.causal, self.chunk, self.position = causal, chunk, position
        self.query = Linear(width, width, bias=bias)
        self.key = Linear(width, width, bias=bias)
        self.value = Linear(width, width, bias=bias)
        self.output = Linear(width, width, bias=bias)

    def forward(self, x_BTD: Tensor, *, cache: StateCache | None = None, documents: Documents | None = None) -> Tensor:
        """x_BTD to what each token has read, y_BTD; sums are kept in float32 at least."""
        query_BHTK = feature_map(self._heads(self.query(x_BTD)))
        key_BHTK = feature_map(self._heads(self.key(x_BTD)))
        value_BHTV = self._heads(self.value(x_BTD)).to(key_BHTK.dtype)
        with exact_products(x_BTD.device):
            read_BHTV = self._read(query_BHTK, key_BHTK, value_BHTV, cache=cache, documents=documents)
        return self.output(read_BHTV.to(x_BTD.dtype).transpose(1, 2).flatten(2))

    def new_cache(self, batch: int, *, capacity: int, device: torch.device, dtype: torch.dtype) -> StateCache:
        """The two sums, of phi(k) v^T and of phi(k), in float32 at least; `capacity` does not matter."""
        exact = torch.promote_types(dtype, torch.float32)
        shapes = (self.head_width, self.head_width), (1, self.head_width)
        return StateCache(*(torch.zeros(batch, self.num_heads, *shape, device=device, dtype=exact) for shape in shapes))

    def _read(
        self,
        query_BHTK: Tensor,
        key_BHTK: Tensor,
        value_BHTV: Tensor,
        *,
        cache: StateCache | None,
        documents: Documents | None,
    ) -> Tensor:
        offset = 0 if cache is None else cache.length
        turned_query_BHTK, turned_key_BHTK = (self.position(x, offset=offset) for x in (query_BHTK, key_BHTK))
        if not self.causal:
            assert documents is None, "sums over all tokens are not divided into documents"
            total_BH1K = key_BHTK.sum(2, keepdim=True)
            return read_all(turned_query_BHTK, turned_key_BHTK, value_BHTV) / (query_BHTK * total_BH1K).sum(-1, keepdim=True)
        state = (None, None) if cache is None else cache.tensors
        streams = turned_query_BHTK, turned_key_BHTK, value_BHTV
        prefix = read_before(*streams, chunk=self.chunk, state_BHKV=state[0], documents=documents)
        total_BHTK = sum_before(key_BHTK, start_BH1K=state[1], documents=documents)
        if cache is not None:
            cache.advance(prefix.state_BHKV, total_BHTK[:, :, -1:], num_tokens=key_BHTK.shape[2])
        return prefix.read_BHTV / (query_BHTK * total_BHTK).sum(-1, keepdim=True)

    def _heads(self, x_BTD: Tensor) -> Tensor:
        return split_heads(x_BTD, head_width=self.head_width)


@dataclass(frozen=True)
class Prefix:
    """What every token reads of itself and those before it, and the state after the last one."""

    read_BHTV: Tensor
    state_BHKV: Tensor

    def first(self, num_tokens: int) -> Prefix:
        """Without what was read for tokens that only fill the last chunk."""
        return Prefix(self.read_BHTV[:, :, :num_tokens], self.state_BHKV)


def feature_map(x: Tensor) -> Tensor:
    """elu(x) + 1 (Katharopoulos et al. 2020, equation 7), in float32 at least, without cancelling to 0."""
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    return torch.where(x > 0, x + 1, x.clamp(max=0).exp())


def read_all(query_BHTK: Tensor, key_BHTK: Tensor, value_BHTV: Tensor) -> Tensor:
    """q_i sum over all j of k_j v_j^T, read_BHTV."""
    return query_BHTK @ (key_BHTK.transpose(2, 3) @ value_BHTV)


def sum_before(key_BHTK: Tensor, *, start_BH1K: Tensor | None, documents: Documents | None = None) -> Tensor:
    """start + sum over j <= i of k_j, total_BHTK; with documents, over those of the token's own alone."""
    if documents is None:
        return key_BHTK.cumsum(2) if start_BH1K is None else key_BHTK.cumsum(2) + start_BH1K
    key_BTHK = key_BHTK.transpose(1, 2)
    kept_BT11 = (~documents.first_BT(key_BHTK.shape[2])).to(key_BHTK.dtype)[:, :, None, None]
    start_BHK = torch.zeros_like(key_BTHK[:, 0]) if start_BH1K is None else start_BH1K.squeeze(2)
    return linear_recurrence(kept_BT11.expand_as(key_BTHK), key_BTHK, start_B=start_BHK).transpose(1, 2)


def read_before(
    query_BHTK: Tensor,
    key_BHTK: Tensor,
    value_BHTV: Tensor,
    *,
    chunk: int,
    state_BHKV: Tensor | None = None,
    documents: Documents | None = None,
) -> Prefix:
    """q_i (state + sum over j <= i of k_j v_j^T), in chunks: within one by its scores, across them by a running sum.

    With documents, the sum is over those tokens j that are of the document of i.
    """
    num_tokens = query_BHTK.shape[2]
    size = min(chunk, num_tokens)
    query_BHNCK, key_BHNCK, value_BHNCV = (_chunks(x, size=size) for x in (query_BHTK, key_BHTK, value_BHTV))
    if documents is not None:
        borders = chunks_of(documents.first_BT(num_tokens), size=size)
        return _read_documents(query_BHNCK, key_BHNCK, value_BHNCV, state_BHKV=state_BHKV, borders=borders).first(num_tokens)
    running_BHNKV = (key_BHNCK.transpose(3, 4) @ value_BHNCV).cumsum(2)
    if state_BHKV is not None:
        running_BHNKV = running_BHNKV + state_BHKV.unsqueeze(2)
    start_BH1KV = torch.zeros_like(running_BHNKV[:, :, :1]) if state_BHKV is None else state_BHKV.unsqueeze(2)
    before_BHNKV = torch.cat((start_BH1KV, running_BHNKV[:, :, :-1]), dim=2)
    scores_BHNCC = (query_BHNCK @ key_BHNCK.transpose(3, 4)).tril()
    read_BHNCV = scores_BHNCC @ value_BHNCV + query_BHNCK @ before_BHNKV
    return Prefix(read_BHNCV.flatten(2, 3), running_BHNKV[:, :, -1]).first(num_tokens)


def _read_documents(
    query_BHNCK: Tensor, key_BHNCK: Tensor, value_BHNCV: Tensor, *, state_BHKV: Tensor | None, borders: Chunks
) -> Prefix:
    """As `read_before` does it, but for what a border keeps apart."""
    added_BHNKV = (key_BHNCK * borders.leaves_B1NC1).transpose(3, 4) @ value_BHNCV
    added_BNHKV = added_BHNKV.transpose(1, 2)
    passed_BNHKV = borders.passes_BN.to(added_BNHKV.dtype)[:, :, None, None, None].expand_as(added_BNHKV)
    start_BHKV = torch.zeros_like(added_BNHKV[:, 0]) if state_BHKV is None else state_BHKV
    running_BNHKV = linear_recurrence(passed_BNHKV, added_BNHKV, start_B=start_BHKV)
    before_BHNKV = torch.cat((start_BHKV.unsqueeze(1), running_BNHKV[:, :-1]), dim=1).transpose(1, 2)
    scores_BHNCC = (query_BHNCK @ key_BHNCK.transpose(3, 4)).tril() * borders.same_B1NCC
    read_BHNCV = scores_BHNCC @ value_BHNCV + (query_BHNCK * borders.reads_B1NC1) @ before_BHNKV
    return Prefix(read_BHNCV.flatten(2, 3), running_BNHKV[:, -1])


def _chunks(x_BHTK: Tensor, *, size: int) -> Tensor:
    """x_BHNCK; zeros behind the last token add nothing to the state."""
    return F.pad(x_BHTK, (0, 0, 0, -x_BHTK.shape[2] % size)).unflatten(2, (-1, size))
