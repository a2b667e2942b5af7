"""Retention in the attention slot: a state of key-value products that fades.

The invariant: the recurrence runs in float32 or better whatever the network's dtype, chunk by chunk, and no value depends
on the chunk's length.

Legend: B batch, T tokens, D width, H heads, K key units a head, V value units a head, C tokens a chunk, N chunks.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from knockout.declare import parts as declared
from knockout.model.cache import StateCache
from knockout.model.documents import Chunks, Documents, chunks_of
from knockout.model.head_position import HeadPosition
from knockout.model.linear import Linear
from knockout.model.mixer import TokenMixer
from knockout.model.precision import exact_products
from knockout.model.scan import linear_recurrence

EPS = 1e-5
"""Added to the variance of a head's output before its norm."""


class Retention(TokenMixer[StateCache]):
    """S_t = gamma S_(t-1) + k_t^T v_t, y_t = q_t S_t in every head, normed and gated (Sun et al. 2023, equations 5 - 8).

    A head's output is normed over its units without gain and bias, which the last map can hold as well; keys are
    divided by sqrt(K), which that norm makes a matter of rounding alone (section 2.2).
    """

    decay_H: Tensor

    def __init__(
        self, mixer: declared.RetentionMixer, *, width: int, num_heads: int, bias: bool, position: HeadPosition
    ) -> None:
        super().__init__()
        self.num_heads, self.key_width, self.chunk = num_heads, width // num_heads, mixer.chunk
        self.value_width = mixer.value_expansion * self.key_width
        self.position = position
        inner = num_heads * self.value_width
        self.query = Linear(width, width, bias=bias)
        self.key = Linear(width, width, bias=bias)
        self.value = Linear(width, inner, bias=bias)
        self.gate = Linear(width, inner, bias=bias)
        self.output = Linear(inner, width, bias=bias)
        self.register_buffer("decay_H", decays_H(num_heads), persistent=False)

    def forward(self, x_BTD: Tensor, *, cache: StateCache | None = None, documents: Documents | None = None) -> Tensor:
        """x_BTD to y_BTD."""
        offset = 0 if cache is None else cache.length
        query_BHTK = self.position(self._heads(self.query(x_BTD)), offset=offset)
        key_BHTK = self.position(self._heads(self.key(x_BTD)), offset=offset) * self.key_width**-0.5
        value_BHTV = self._heads(self.value(x_BTD))
        start_BHKV = self._zeros_BHKV(x_BTD) if cache is None else cache.tensors[0]
        with exact_products(x_BTD.device):
            exact = start_BHKV.dtype
            streams = (query_BHTK.to(exact), key_BHTK.to(exact), value_BHTV.to(exact))
            fixed = {"decay_H": self.decay_H.to(exact), "chunk": self.chunk, "documents": documents}
            read_BHTV, last_BHKV = retain(*streams, start_BHKV=start_BHKV, **fixed)
            normed_BHTV = F.layer_norm(read_BHTV, (self.value_width,), eps=EPS)
        if cache is not None:
            cache.advance(last_BHKV, num_tokens=x_BTD.shape[1])
        gate_BTE = F.silu(self.gate(x_BTD))
        return self.output(gate_BTE * normed_BHTV.transpose(1, 2).flatten(2).to(gate_BTE.dtype))

    def new_cache(self, batch: int, *, capacity: int, device: torch.device, dtype: torch.dtype) -> StateCache:
        """The state [B, H, K, V] in float32 at least, zeros; `capacity` does not matter."""
        return StateCache(self._zeros_BHKV(torch.empty(batch, 0, device=device, dtype=dtype)))

    def _heads(self, x_BTE: Tensor) -> Tensor:
        return x_BTE.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def _zeros_BHKV(self, like: Tensor) -> Tensor:
        dtype = torch.promote_types(like.dtype, torch.float32)
        return like.new_zeros(like.shape[0], self.num_heads, self.key_width, self.value_width, dtype=dtype)


def decays_H(num_heads: int) -> Tensor:
    """gamma = 1 - 2^(-5 - h) for the heads h = 0, 1, ... (Sun et al. 2023, equation 8), float64."""
    return 1.0 - 2.0 ** (-5.0 - torch.arange(num_heads, dtype=torch.float64))


def retain(
    query_BHTK: Tensor,
    key_BHTK: Tensor,
    value_BHTV: Tensor,
    *,
    decay_H: Tensor,
    start_BHKV: Tensor,
    chunk: int,
    documents: Documents | None = None,
) -> tuple[Tensor, Tensor]:
    """What each token reads, read_BHTV, and the state after the last, chunk by chunk (Sun et al. 2023, equation 7).

    Full chunks run side by side, a shorter rest after them. With documents, each starts from a state of 0.
    """
    num_tokens = query_BHTK.shape[2]
    num_whole = num_tokens // chunk * chunk
    streams = (query_BHTK, key_BHTK, value_BHTV)
    reads, state_BHKV = [], start_BHKV
    first_BT = None if documents is None else documents.first_BT(num_tokens)
    for start, end, size in ((0, num_whole, chunk), (num_whole, num_tokens, num_tokens - num_whole)):
        if start == end:
            continue
        chunks = (stream[:, :, start:end].unflatten(2, (-1, size)) for stream in streams)
        borders = None if first_BT is None else chunks_of(first_BT[:, start:end], size=size)
        read_BHNCV, state_BHKV = _retain_chunks(*chunks, decay_H=decay_H, start_BHKV=state_BHKV, borders=borders)
        reads.append(read_BHNCV.flatten(2, 3))
    return torch.cat(reads, dim=2), state_BHKV


def _retain_chunks(
    query_BHNCK: Tensor,
    key_BHNCK: Tensor,
    value_BHNCV: Tensor,
    *,
    decay_H: Tensor,
    start_BHKV: Tensor,
    borders: Chunks | None,
) -> tuple[Tensor, Tensor]:
    place_C = torch.arange(query_BHNCK.shape[3], device=decay_H.device)
    rate_H11 = decay_H[:, None, None]
    distance_CC = (place_C[:, None] - place_C).clamp(min=0)
    within = (rate_H11**distance_CC).tril().unsqueeze(1)
    to_end = (rate_H11 ** (place_C.flip(0)[:, None])).unsqueeze(1)
    across = rate_H11 ** len(place_C)
    from_start = (rate_H11 ** (place_C + 1)[:, None]).unsqueeze(1)
    if borders is not None:
        within, to_end = within * borders.same_B1NCC, to_end * borders.leaves_B1NC1
        across, from_start = across * borders.passes_BN[:, :, None, None, None], from_start * borders.reads_B1NC1
    within_BHNCV = (query_BHNCK @ key_BHNCK.transpose(-1, -2) * within) @ value_BHNCV
    added_BHNKV = (key_BHNCK * to_end).transpose(-1, -2) @ value_BHNCV
    added_BNHKV = added_BHNKV.transpose(1, 2)
    state_BNHKV = linear_recurrence(across.expand_as(added_BNHKV), added_BNHKV, start_B=start_BHKV)
    before_BNHKV = torch.cat((start_BHKV.unsqueeze(1), state_BNHKV[:, :-1]), dim=1)
    read_BHNCV = within_BHNCV + (query_BHNCK * from_start) @ before_BNHKV.transpose(1, 2)
    return read_BHNCV, state_BNHKV[:, -1]
