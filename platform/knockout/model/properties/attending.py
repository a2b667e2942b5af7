"""Properties of attention: its weights, its maps, its heads, its scale and its mask.

Legend: B batch, T tokens, D width, H heads, K head width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from knockout.declare.architecture import Architecture
from knockout.declare.parts import SingleHeadAttention
from knockout.model.identities import future_leak
from knockout.model.properties.finding import (
    EXACT,
    Finding,
    attention_of,
    difference,
    draw,
    in_heads,
    joined,
    network_of,
    same,
    weights_BHTT,
)

NUM_QUERIES, NUM_KEYS = 256, 256
VANISHED = 1e-3
"""A gradient under this share of the other one counts as gone."""


def rows_are_distributions(architecture: Architecture) -> Finding:
    """Whether the weights are nowhere negative and every row sums to 1."""
    query, key, _ = _projected(architecture)
    weights = weights_BHTT(query, key, causal=architecture.causal)
    off, least = (weights.sum(-1) - 1).abs().max().item(), weights.min().item()
    detail = f"the least weight is {least:.1e} and no row's sum is further from 1 than {off:.1e}"
    return Finding(off <= EXACT and least >= 0.0, off, detail)


def keys_come_from_the_key_map(architecture: Architecture) -> Finding:
    """Whether attention as it is built has K = X W_K."""
    return _as_with_keys(architecture, source="key")


def keys_come_from_the_value_map(architecture: Architecture) -> Finding:
    """Whether attention as it is built has K = X W_V."""
    return _as_with_keys(architecture, source="value")


def scaling_keeps_the_gradient(architecture: Architecture) -> Finding:
    """Whether the softmax's gradient is there with 1/sqrt(K) and gone without (Vaswani et al. 2017, section 3.2.1).

    Queries and keys have independent standard normal units, so scores have a variance of K. What is compared is the
    gradient of a weight by its own score, p (1 - p), at the middle of all scores.
    """
    head_width = architecture.width // architecture.heads
    scores = draw(NUM_QUERIES, head_width, name="query") @ draw(NUM_KEYS, head_width, name="key").T
    raw, scaled = scores.softmax(-1), (scores / head_width**0.5).softmax(-1)
    gradient, without = ((p * (1 - p)).median().item() for p in (scaled, raw))
    top, top_without = (p.max(-1).values.mean().item() for p in (scaled, raw))
    detail = (
        f"with heads of {head_width} the scores deviate by {scores.std().item():.1f}, scaled by "
        f"{scores.std().item() / head_width**0.5:.2f}; unscaled, the largest of {NUM_KEYS} weights is {top_without:.2f} on "
        f"average and the middle gradient {without:.0e}; scaled, they are {top:.2f} and {gradient:.0e}"
    )
    return Finding(without <= VANISHED * gradient, without / gradient, detail)


def heads_equal_one_wide_head(architecture: Architecture) -> Finding:
    """Whether several heads with the same four maps give what one wide head gives."""
    several, wide = _several_and_wide(architecture, output=True)
    return same(
        several,
        wide,
        equal=f"{architecture.heads} heads and one wide head give the same",
        unequal=f"with the same four maps {architecture.heads} heads and one wide head give different outputs: "
        "each head weighs the tokens by scores of its own, the wide head by one set",
    )


def heads_differ_by_the_output_map(architecture: Architecture) -> Finding:
    """Whether the difference from one wide head is gone once both leave the output map out."""
    (several, wide), (mapped, wide_mapped) = (_several_and_wide(architecture, output=o) for o in (False, True))
    gap, gap_mapped = difference(several, wide), difference(mapped, wide_mapped)
    gone = gap <= EXACT
    detail = (
        f"with the output map the two differ by {gap_mapped:.2f} of their size, and without it by {gap:.2f}: "
        f"{'it' if gone else 'not it, but the separate softmax of every head'} makes the difference"
    )
    return Finding(gone, gap, detail)


def later_tokens_do_not_matter(architecture: Architecture) -> Finding:
    """Whether outputs up to a position stay when later tokens are replaced."""
    leak = future_leak(architecture, seed=0)
    change = "moves no earlier output" if leak <= EXACT else "moves earlier outputs"
    return Finding(leak <= EXACT, leak, f"replacing later tokens {change} (largest change {leak:.1e})")


def every_head_scores_all_pairs(architecture: Architecture) -> Finding:
    """Whether N tokens give every head a matrix of N x N scores."""
    query, key, _ = _projected(architecture)
    shape = tuple((query @ key.transpose(-1, -2))[0].shape)
    num_tokens = architecture.context
    detail = f"{num_tokens} tokens give scores of shape {' × '.join(map(str, shape))}, heads first"
    return Finding(shape == (architecture.heads, num_tokens, num_tokens), float(shape[-1]), detail)


def flash_equals_explicit(architecture: Architecture) -> Finding:
    """Whether torch's FlashAttention kernel (Dao et al. 2022) gives softmax(Q K^T / sqrt(K)) V, masked and not."""
    head_width = architecture.width // architecture.heads
    query, key, value = (draw(2, architecture.heads, NUM_KEYS + 3, head_width, name=name) for name in ("q", "k", "v"))
    gaps = []
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        for causal in (True, False):
            fused = F.scaled_dot_product_attention(query, key, value, is_causal=causal)
            gaps.append(difference(fused, weights_BHTT(query, key, causal=causal) @ value))
    gap = max(gaps)
    detail = f"torch's flash kernel and the explicit matrix of {NUM_KEYS + 3} × {NUM_KEYS + 3} scores agree to {gap:.1e}"
    return Finding(gap <= EXACT, gap, f"{detail}, with the causal mask and without")


def _input_BTD(architecture: Architecture) -> Tensor:
    return draw(2, architecture.context, architecture.width, name="x")


def _projected(architecture: Architecture) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of the first block, in heads; keys and values repeated where heads share them."""
    attention, x_BTD = attention_of(network_of(architecture)), _input_BTD(architecture)
    head_width = architecture.width // architecture.heads
    with torch.no_grad():
        found = [part(x_BTD) for part in (attention.query, attention.key, attention.value)]
    heads = [in_heads(x, num_heads=x.shape[-1] // head_width) for x in found]
    query, key, value = (x.repeat_interleave(architecture.heads // x.shape[1], dim=1) for x in heads)
    return query, key, value


def _as_with_keys(architecture: Architecture, *, source: str) -> Finding:
    attention, x_BTD = attention_of(network_of(architecture)), _input_BTD(architecture)
    heads = architecture.heads
    query, key, value = (
        in_heads(part(x_BTD), num_heads=heads) for part in (attention.query, getattr(attention, source), attention.value)
    )
    read = attention.output(joined(weights_BHTT(query, key, causal=architecture.causal) @ value))
    (gradient,) = torch.autograd.grad(read.square().sum(), attention.key.weight, allow_unused=True)
    unused = "W_K is then never used and gets no gradient" if gradient is None else "W_K is used and gets a gradient"
    name = {"key": "W_K", "value": "W_V"}[source]
    return same(
        read.detach(),
        attention(x_BTD).detach(),
        equal=f"with K = X {name} the outputs are those of attention; {unused}",
        unequal=f"with K = X {name} the outputs are not those of attention; {unused}",
    )


def _several_and_wide(architecture: Architecture, *, output: bool) -> tuple[Tensor, Tensor]:
    """What several heads and one wide head make of one input with the same maps, through the output map or not."""
    single = SingleHeadAttention(causal=architecture.attention.causal)
    wide = architecture.model_copy(update={"attention": single})
    several_part, wide_part = (attention_of(network_of(a)) for a in (architecture, wide))
    wide_part.load_state_dict(several_part.state_dict())
    if not output:
        for part in (several_part, wide_part):
            torch.nn.init.eye_(part.output.weight)
            if part.output.bias is not None:
                torch.nn.init.zeros_(part.output.bias)
    x_BTD = _input_BTD(architecture)
    with torch.no_grad():
        return several_part(x_BTD), wide_part(x_BTD)
