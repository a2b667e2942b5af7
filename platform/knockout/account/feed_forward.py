"""The closed form of the feed-forward part.

The invariant: equal to what `model/feed_forward.py` builds; a mixture's FLOPs are those of its active
experts.
"""

from __future__ import annotations

from knockout.account.cost import Cost, linear
from knockout.declare.architecture import Architecture, hidden_width, is_gated
from knockout.declare.parts import MoeFeedForward, NoFeedForward


def feed_forward_cost(architecture: Architecture) -> Cost:
    """One block's feed-forward part, its norm apart."""
    match architecture.ffn:
        case NoFeedForward():
            return Cost()
        case MoeFeedForward(experts=experts, top_k=top_k):
            expert = _maps(architecture)
            router = linear(architecture.width, experts, bias=False)
            working = expert * top_k
            return router + Cost(expert.parameters * experts, working.active, working.flops_per_token)
        case _:
            return _maps(architecture)


def _maps(architecture: Architecture) -> Cost:
    width, hidden, bias = architecture.width, hidden_width(architecture), architecture.bias
    num_up = 2 if is_gated(architecture.ffn) else 1
    return linear(width, hidden, bias=bias) * num_up + linear(hidden, width, bias=bias)
