"""The feed-forward slot: from the declared kind to its module."""

from __future__ import annotations

from functools import partial

from knockout.declare import parts as declared
from knockout.declare.architecture import Architecture, hidden_width
from knockout.model.dense import FeedForward, build_maps
from knockout.model.linear import ExpertLinear, Linear
from knockout.model.mixture import MixtureOfExperts


def build_feed_forward(architecture: Architecture) -> FeedForward | None:
    """The feed-forward part that the declaration asks for; None where there is none."""
    width, bias = architecture.width, architecture.bias
    build = partial(build_maps, width=width, hidden=hidden_width(architecture))

    def dense(inputs: int, outputs: int) -> Linear:
        return Linear(inputs, outputs, bias=bias)

    match architecture.ffn:
        case declared.NoFeedForward():
            return None
        case declared.GeluFeedForward():
            return build("gelu", make_linear=dense)
        case declared.ReluFeedForward():
            return build("relu", make_linear=dense)
        case declared.SwigluFeedForward():
            return build("swiglu", make_linear=dense)
        case declared.LinearFeedForward():
            return build(None, make_linear=dense)
        case declared.MoeFeedForward(experts=experts, top_k=top_k, balance=balance, activation=activation):
            return MixtureOfExperts(
                router=Linear(width, experts, bias=False),
                experts=build(activation, make_linear=partial(ExpertLinear, experts, bias=bias)),
                num_experts=experts,
                top_k=top_k,
                balance=balance,
            )
