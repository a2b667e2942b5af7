"""From queries, keys and values to what every query reads: the softmax over scores, and who sees whom.

The invariant: the mask follows from the numbers of queries and keys and from the documents alone, since the last query
always stands with the last key; so a part can neither forget it nor get it wrong when a cache holds the first keys. The
documents' mask is one of truth values for all heads, unless each head adds numbers of its own.

Legend: B batch, T queries, S keys, H query heads, G key/value heads, R = H / G, K key width, V value width, N blocks,
W window.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from knockout.model.documents import Documents
from knockout.model.head_position import distances_TS

Bias = Callable[..., Tensor | None]
"""(number of queries T, number of keys S, like=a tensor) -> what is added to the scores, [H, T, S], or None."""

Read = Callable[..., Tensor]
"""(queries, keys, values, mask=) -> what the queries read."""


class Prefix:
    """The first tokens that every other may see, later ones too, in the pass under way; all blocks share one."""

    num_tokens: int = 0


@dataclass(frozen=True)
class ScoreRule:
    """How scores become weights."""

    causal: bool
    """Mask later keys."""
    scale: float
    """Factor of the scores."""
    window: int | None = None
    """Keys that a query can see, its own included; None for all. Only for causal attention."""
    explicit: bool = False
    """Form the matrix of scores, instead of leaving them to torch's kernel."""
    prefix: Prefix | None = None
    """What is seen in spite of the causal mask; never together with a window."""

    @property
    def open_tokens(self) -> int:
        """How many first keys every query sees."""
        return 0 if self.prefix is None else self.prefix.num_tokens


def attend(
    query_BHTK: Tensor,
    key_BGSK: Tensor,
    value_BGSV: Tensor,
    *,
    rule: ScoreRule,
    bias: Bias,
    dropout: float,
    documents: Documents | None = None,
) -> Tensor:
    """softmax(scale * Q K^T + bias) V under the rule's mask, read_BHTV (Vaswani et al. 2017, equation 1).

    With fewer key/value heads than query heads, each serves a run of neighbouring query heads (Ainslie et al. 2023).
    `dropout` is the probability of dropping a weight. With documents, keys of others are masked (Zhao et al. 2024,
    "Analysing the Impact of Sequence Composition on Language Model Pre-Training", section 2.2).
    """
    num_queries, num_keys = query_BHTK.shape[2], key_BGSK.shape[2]
    read = partial(_read, rule=rule, dropout=dropout)
    if rule.window is not None and num_queries == num_keys and num_keys > 2 * rule.window:
        inputs = query_BHTK, key_BGSK, value_BGSV
        return _in_blocks(*inputs, read=read, rule=rule, window=rule.window, bias=bias, documents=documents)
    bias_HTS = bias(num_queries, num_keys, like=query_BHTK)
    plain = bias_HTS is None and documents is None and (rule.window is None or rule.window >= num_keys)
    if plain and rule.causal and num_queries == num_keys and not rule.explicit and not rule.open_tokens:
        return _fused(query_BHTK, key_BGSK, value_BGSV, rule=rule, dropout=dropout, mask=None, is_causal=True)
    seen = visible_TS(num_queries, num_keys, rule=rule, device=query_BHTK.device)
    if documents is not None:
        same_B1TS = documents.same_B1TS(num_queries, num_keys=num_keys)
        seen = same_B1TS if seen is None else seen & same_B1TS
    mask = _with_bias(seen, bias_HTS)
    return read(query_BHTK, key_BGSK, value_BGSV, mask=mask)


def attention_weights(query_BHTK: Tensor, key_BGSK: Tensor, *, scale: float, mask: Tensor | None) -> Tensor:
    """softmax(scale * Q K^T), weights_BHTS, under a mask (True: seen, or numbers to add) that broadcasts to it."""
    groups = key_BGSK.shape[1]
    grouped_BGRTK = query_BHTK.unflatten(1, (groups, -1)) * scale
    scores_BHTS = (grouped_BGRTK @ key_BGSK.unsqueeze(2).transpose(-1, -2)).flatten(1, 2)
    if mask is not None:
        scores_BHTS = scores_BHTS.masked_fill(~mask, -torch.inf) if mask.dtype is torch.bool else scores_BHTS + mask
    exact = torch.promote_types(scores_BHTS.dtype, torch.float32)
    return scores_BHTS.softmax(-1, dtype=exact)


def visible_TS(num_queries: int, num_keys: int, *, rule: ScoreRule, device: torch.device) -> Tensor | None:
    """True where a query sees a key, and the last of both are one token; None when all see all."""
    hides_old = rule.window is not None and rule.window < num_keys
    if not rule.causal or (num_queries == 1 and not hides_old):
        return None
    distance_TS = distances_TS(num_queries, num_keys, device=device)
    seen_TS = distance_TS >= 0
    if rule.open_tokens:
        return seen_TS | (torch.arange(num_keys, device=device) < rule.open_tokens)
    return seen_TS & (distance_TS < rule.window) if rule.window is not None else seen_TS


def _with_bias(seen: Tensor | None, bias_HTS: Tensor | None) -> Tensor | None:
    if seen is None or bias_HTS is None:
        return bias_HTS if seen is None else seen
    return bias_HTS.masked_fill(~seen, -torch.inf)


def _read(
    query_BHTK: Tensor, key_BGSK: Tensor, value_BGSV: Tensor, *, rule: ScoreRule, dropout: float, mask: Tensor | None
) -> Tensor:
    if not rule.explicit:
        return _fused(query_BHTK, key_BGSK, value_BGSV, rule=rule, dropout=dropout, mask=mask)
    weights_BHTS = attention_weights(query_BHTK, key_BGSK, scale=rule.scale, mask=mask)
    kept_BHTS = F.dropout(weights_BHTS, dropout, training=dropout > 0).to(value_BGSV.dtype)
    return (kept_BHTS.unflatten(1, (value_BGSV.shape[1], -1)) @ value_BGSV.unsqueeze(2)).flatten(1, 2)


def _fused(
    query_BHTK: Tensor,
    key_BGSK: Tensor,
    value_BGSV: Tensor,
    *,
    rule: ScoreRule,
    dropout: float,
    mask: Tensor | None,
    is_causal: bool = False,
) -> Tensor:
    return F.scaled_dot_product_attention(
        query_BHTK,
        key_BGSK,
        value_BGSV,
        attn_mask=mask,
        is_causal=is_causal,
        dropout_p=dropout,
        scale=rule.scale,
        enable_gqa=key_BGSK.shape[1] < query_BHTK.shape[1],
    )


def _in_blocks(
    query_BHTK: Tensor,
    key_BGSK: Tensor,
    value_BGSV: Tensor,
    *,
    read: Read,
    rule: ScoreRule,
    window: int,
    bias: Bias,
    documents: Documents | None,
) -> Tensor:
    """A window as blocks of its length, each of which reads itself and the one before: 2 W keys a query, whatever T."""
    batch, num_tokens = query_BHTK.shape[0], query_BHTK.shape[2]
    missing = -num_tokens % window
    num_blocks = (num_tokens + missing) // window
    blocks_BHNWK = F.pad(query_BHTK, (0, 0, 0, missing)).unflatten(2, (num_blocks, window))
    key_MGSK, value_MGSV = (_with_block_before(x, missing=missing, window=window) for x in (key_BGSK, value_BGSV))
    mask_MHWS = _block_mask((batch, num_blocks), window=window, rule=rule, bias=bias, like=query_BHTK, documents=documents)
    read_MHWV = read(blocks_BHNWK.transpose(1, 2).flatten(0, 1), key_MGSK, value_MGSV, mask=mask_MHWS)
    return read_MHWV.unflatten(0, (batch, num_blocks)).transpose(1, 2).flatten(2, 3)[:, :, :num_tokens]


def _block_mask(
    shape: tuple[int, int], *, window: int, rule: ScoreRule, bias: Bias, like: Tensor, documents: Documents | None
) -> Tensor:
    """mask_MHWS of B sequences in N blocks, `shape`; the first block has none before it."""
    seen_WS = visible_TS(window, 2 * window, rule=rule, device=like.device)
    assert seen_WS is not None, "a window hides what stands before it"
    own_S = torch.arange(2 * window, device=like.device) >= window
    later_N = torch.arange(shape[1], device=like.device) > 0
    seen_NHWS = seen_WS & (own_S | later_N[:, None, None, None])
    seen_BNHWS = seen_NHWS.expand(shape[0], -1, -1, -1, -1)
    if documents is not None:
        seen_BNHWS = seen_BNHWS & _same_in_blocks(documents, num_tokens=like.shape[2], window=window)
    mask = _with_bias(seen_BNHWS, bias(window, 2 * window, like=like))
    assert mask is not None
    return mask.flatten(0, 1)


def _same_in_blocks(documents: Documents, *, num_tokens: int, window: int) -> Tensor:
    """same_BN1WS: True where a query of a block and a key of it or of the block before are of one document."""
    number_BT = documents.number_BS[:, -num_tokens:]
    blocks_BNW = F.pad(number_BT, (0, -num_tokens % window), value=-1).unflatten(1, (-1, window))
    before_BNW = F.pad(blocks_BNW[:, :-1], (0, 0, 1, 0), value=-1)
    keys_BNS = torch.cat((before_BNW, blocks_BNW), dim=2)
    return (blocks_BNW.unsqueeze(-1) == keys_BNS.unsqueeze(-2)).unsqueeze(2)


def _with_block_before(x_BGTK: Tensor, *, missing: int, window: int) -> Tensor:
    """Keys or values to x_MGSK of M = B * N blocks and S = 2 W keys; before the first stand zeros, which the mask hides."""
    blocks_BGNWK = F.pad(x_BGTK, (0, 0, window, missing)).unflatten(2, (-1, window))
    pairs_BGNSK = torch.cat((blocks_BGNWK[:, :, :-1], blocks_BGNWK[:, :, 1:]), dim=3)
    return pairs_BGNSK.transpose(1, 2).flatten(0, 1)
