"""The closed form of the feed-forward part.

The invariant: equal to what `model/feed_forward.py` builds; a mixture's FLOPs are those of the experts that work on a
token.
"""

from __future__ import annotations

from dataclasses import replace

from knockout.account.cost import Cost, linear
from knockout.declare.architecture import Architecture, hidden_width
from knockout.declare.parts import MoeFeedForward, NoFeedForward, is_gated


def feed_forward_cost(architecture: Architecture) -> Cost:
    """One block's feed-forward part, its norm apart."""
    match architecture.ffn:
        case NoFeedForward():
            return Cost()
        case MoeFeedForward() as moe:
            return _mixture(moe, architecture=architecture)
        case _:
            return _maps(architecture, hidden=hidden_width(architecture))


def _mixture(moe: MoeFeedForward, *, architecture: Architecture) -> Cost:
    hidden = hidden_width(architecture)
    expert = _maps(architecture, hidden=hidden)
    working = expert * moe.top_k
    chosen = replace(working, parameters=expert.parameters * moe.experts)
    shared = _maps(architecture, hidden=moe.shared * hidden) if moe.shared else Cost()
    return linear(architecture.width, moe.experts, bias=False) + chosen + shared


def _maps(architecture: Architecture, *, hidden: int) -> Cost:
    width, bias = architecture.width, architecture.bias
    num_up = 2 if is_gated(architecture.ffn) else 1
    return linear(width, hidden, bias=bias) * num_up + linear(hidden, width, bias=bias)
