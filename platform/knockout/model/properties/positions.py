"""Properties of positional codes, and of a network that has none.

Legend: B batch, T tokens, D width, H heads, K head width, P pairs (half a width).
"""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

from knockout.declare.architecture import Architecture
from knockout.model.position import build_head_position, sinusoids_TD
from knockout.model.properties.finding import (
    EXACT,
    Finding,
    attention_of,
    difference,
    draw,
    in_heads,
    network_of,
    same,
    tokens_of,
)

SHIFTS = (1, 7, 64)
NUM_POSITIONS = 256
NUM_PAIRS_OF_VECTORS = 200


def sinusoidal_shift_is_linear(architecture: Architecture) -> Finding:
    """PE(pos + k) = M_k PE(pos) with one M_k, a rotation of every pair, for all pos (Vaswani et al. 2017, section 3.5)."""
    table_TD = sinusoids_TD(NUM_POSITIONS + max(SHIFTS), width=architecture.width)
    gaps = [
        difference(_rotated(table_TD[:NUM_POSITIONS], shift=shift), table_TD[shift : shift + NUM_POSITIONS])
        for shift in SHIFTS
    ]
    found = f"rotating every pair by k steps takes PE(pos) to PE(pos + k) at all {NUM_POSITIONS} positions, k = 1, 7, 64"
    return Finding(max(gaps) <= EXACT, max(gaps), f"{found} (largest difference {max(gaps):.1e})")


def sinusoidal_wavelength_falls(architecture: Architecture) -> Finding:
    """Whether the wavelength falls as the index i of a pair grows, read off the table's first two rows."""
    sine_P, cosine_P = sinusoids_TD(2, width=architecture.width)[1].unflatten(0, (-1, 2)).unbind(-1)
    wavelengths_P = 2 * math.pi / torch.atan2(sine_P, cosine_P)
    steps_P = wavelengths_P.diff()
    first, last = wavelengths_P[0].item(), wavelengths_P[-1].item()
    order = "shortest" if bool((steps_P > 0).all()) else "longest" if bool((steps_P < 0).all()) else "neither"
    detail = (
        f"the wavelength is {first:.2f} positions at i = 0 and {last:,.0f} at i = {len(wavelengths_P) - 1:,}: "
        f"the smallest i has the {order}, since 10000^(2i/d) grows with i"
    )
    return Finding(bool((steps_P < 0).all()), last / first, detail)


def sinusoidal_is_bounded(architecture: Architecture) -> Finding:
    """Whether every value lies in [-1, 1]."""
    num, largest = 100 * NUM_POSITIONS, _largest_of_sinusoids(architecture.width)
    return Finding(largest <= 1.0, largest, f"the largest absolute value over {num:,} positions is {largest:.6f}")


@cache
def _largest_of_sinusoids(width: int) -> float:
    return sinusoids_TD(100 * NUM_POSITIONS, width=width).abs().max().item()


def rotary_scores_follow_the_offset(architecture: Architecture) -> Finding:
    """Whether a query and a key, placed anywhere, have a score that only their offset decides (Su et al. 2021, eq. 11)."""
    query_K, key_K = _head_vectors(architecture, name="query")[0], _head_vectors(architecture, name="key")[0]
    scores_TT = _placed_scores(architecture, query_K=query_K, key_K=key_K)
    num = len(scores_TT)
    by_offset = [scores_TT.diagonal(offset) for offset in range(1 - num, num)]
    gap = max((line.max() - line.min()).item() for line in by_offset) / scores_TT.abs().max().item()
    spread = scores_TT.max().item() - scores_TT.min().item()
    detail = (
        f"over all {num} × {num} placements the score of a query and a key varies by {gap:.1e} (relative) at one offset, "
        f"and by {spread:.2f} between offsets"
    )
    return Finding(gap <= EXACT, gap, detail)


def rotary_scores_fall_with_distance(architecture: Architecture) -> Finding:
    """Whether the score of a query and a key always falls as the key moves away."""
    queries, keys = _head_vectors(architecture, name="query"), _head_vectors(architecture, name="key")
    lines = [_placed_scores(architecture, query_K=q, key_K=k)[-1].flip(0) for q, k in zip(queries, keys, strict=True)]
    rising = sum(bool(line[1] > line[0]) for line in lines) / len(lines)
    own = _placed_scores(architecture, query_K=queries[0].abs(), key_K=queries[0].abs())[-1].flip(0)
    turn = int((own.diff() > 0).nonzero()[0]) if bool((own.diff() > 0).any()) else None
    equal = "never rises" if turn is None else f"rises again after offset {turn}"
    falls = rising == 0.0 and turn is None
    detail = (
        f"of {len(lines)} random queries and keys {rising:.0%} score higher one token apart than at the same place; "
        f"with the key equal to the query the score {equal}: it is a sum of cosines of the offset"
    )
    return Finding(falls, rising, detail)


def order_only_permutes_outputs(architecture: Architecture) -> Finding:
    """Whether reordering the tokens reorders the logits and changes none of them."""
    tokens_BT = tokens_of(architecture)
    order_T = torch.arange(tokens_BT.shape[1]).flip(0)
    logits_BTV, reordered_BTV = _logits(architecture, tokens_BT), _logits(architecture, tokens_BT[:, order_T])
    return same(
        reordered_BTV,
        logits_BTV[:, order_T],
        equal="reversing the tokens reverses the logits and changes none: nothing in the network knows the order",
        unequal="reversing the tokens changes what the network says about each of them, so it knows their order",
    )


def order_leaves_scores_unchanged(architecture: Architecture) -> Finding:
    """Whether the matrix of scores of reordered tokens is that of the tokens as they were."""
    tokens_BT = tokens_of(architecture)
    order_T = torch.arange(tokens_BT.shape[1]).flip(0)
    scores, reordered = _first_scores(architecture, tokens_BT), _first_scores(architecture, tokens_BT[:, order_T])
    moved = difference(reordered, scores[..., order_T, :][..., order_T])
    return same(
        reordered,
        scores,
        equal="the two orders have one matrix of scores",
        unequal=f"the two orders' scores agree only with rows and columns reordered like the tokens (then to {moved:.1e})",
    )


def order_leaves_the_last_output_unchanged(architecture: Architecture) -> Finding:
    """Whether the last token's logits stay when the tokens before it change places."""
    tokens_BT = tokens_of(architecture)
    num = tokens_BT.shape[1]
    order_T = torch.cat((torch.arange(num - 1).flip(0), torch.tensor([num - 1])))
    last, reordered = _logits(architecture, tokens_BT)[:, -1], _logits(architecture, tokens_BT[:, order_T])[:, -1]
    depth = f"{architecture.depth} layer{'s' if architecture.depth > 1 else ''}"
    return same(
        reordered,
        last,
        equal=f"after {depth} the last token's logits do not show in which order the earlier ones came",
        unequal=f"after {depth} the last token's logits show in which order the earlier ones came, "
        "since with the mask each of those has read only what stood before it",
    )


def _rotated(table_TD: Tensor, *, shift: int) -> Tensor:
    sine_TP, cosine_TP = table_TD.unflatten(-1, (-1, 2)).unbind(-1)
    width = table_TD.shape[-1]
    angle_P = shift * 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    sines_TP = sine_TP * angle_P.cos() + cosine_TP * angle_P.sin()
    cosines_TP = cosine_TP * angle_P.cos() - sine_TP * angle_P.sin()
    return torch.stack((sines_TP, cosines_TP), dim=-1).flatten(-2)


def _head_vectors(architecture: Architecture, *, name: str) -> Tensor:
    return draw(NUM_PAIRS_OF_VECTORS, architecture.width // architecture.heads, name=name)


def _placed_scores(architecture: Architecture, *, query_K: Tensor, key_K: Tensor) -> Tensor:
    """scores_TT of one query at every position and one key at every position."""
    place = build_head_position(architecture)
    queries, keys = (place(vector_K.repeat(1, 1, architecture.context, 1)) for vector_K in (query_K, key_K))
    return (queries @ keys.transpose(-1, -2))[0, 0]


def _logits(architecture: Architecture, tokens_BT: Tensor) -> Tensor:
    with torch.no_grad():
        return network_of(architecture)(tokens_BT).logits_BTV


def _first_scores(architecture: Architecture, tokens_BT: Tensor) -> Tensor:
    network = network_of(architecture)
    with torch.no_grad():
        x_BTD = network.position(network.embedding(tokens_BT))
        attention = attention_of(network)
        query, key = (in_heads(part(x_BTD), num_heads=architecture.heads) for part in (attention.query, attention.key))
    return query @ key.transpose(-1, -2)
