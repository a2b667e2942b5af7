"""The feed-forward slot: from the declared kind to its module."""

from __future__ import annotations

from functools import partial

from knockout.declare import parts as declared
from knockout.declare.architecture import Architecture, hidden_width
from knockout.model.balance import build_balance
from knockout.model.dense import FeedForward, build_maps
from knockout.model.linear import ExpertLinear, Linear
from knockout.model.mixture import MixtureOfExperts, Router


def build_feed_forward(architecture: Architecture) -> FeedForward | None:
    """The feed-forward part that the declaration asks for; None where there is none."""
    match architecture.ffn:
        case declared.NoFeedForward():
            return None
        case declared.MoeFeedForward() as moe:
            return _build_mixture(moe, architecture=architecture)
        case dense:
            return _build_dense(dense.kind, architecture=architecture, hidden=hidden_width(architecture))


def _build_dense(kind: declared.DenseKind, *, architecture: Architecture, hidden: int) -> FeedForward:
    make_linear = partial(Linear, bias=architecture.bias)
    return build_maps(kind, width=architecture.width, hidden=hidden, make_linear=make_linear)


def _build_mixture(moe: declared.MoeFeedForward, *, architecture: Architecture) -> MixtureOfExperts:
    width, hidden = architecture.width, hidden_width(architecture)
    make_linear = partial(ExpertLinear, moe.experts, bias=architecture.bias)
    shared = _build_dense(moe.activation, architecture=architecture, hidden=moe.shared * hidden) if moe.shared else None
    return MixtureOfExperts(
        router=Router(width, num_experts=moe.experts, top_k=moe.top_k, routing=moe.routing),
        experts=build_maps(moe.activation, width=width, hidden=hidden, make_linear=make_linear),
        shared=shared,
        balance=build_balance(moe.balance, num_experts=moe.experts),
    )
