"""The closed form of the norms.

The invariant: a branch that is absent has no norm; only pre placement has one before the head. Norms count no
FLOPs.
"""

from __future__ import annotations

from knockout.account.cost import Cost, table
from knockout.declare.architecture import Architecture
from knockout.declare.parts import LayerNorm, NoAttention, NoFeedForward, NoNorm, RmsNorm


def block_norm_cost(architecture: Architecture) -> Cost:
    """All norms of one block."""
    branches = (
        not isinstance(architecture.attention, NoAttention),
        not isinstance(architecture.ffn, NoFeedForward),
    )
    return _one(architecture) * sum(branches)


def final_norm_cost(architecture: Architecture) -> Cost:
    """The norm before the head."""
    match architecture.norm:
        case LayerNorm(placement="pre") | RmsNorm(placement="pre"):
            return _one(architecture)
        case _:
            return Cost()


def _one(architecture: Architecture) -> Cost:
    match architecture.norm:
        case LayerNorm():
            return table(2 if architecture.bias else 1, architecture.width)
        case RmsNorm():
            return table(1, architecture.width)
        case NoNorm():
            return Cost()
