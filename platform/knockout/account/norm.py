"""The closed form of the norms, and of the numbers that ReZero has in their place.

The invariant: a branch that is absent has no norm; the two branches of a parallel block share theirs; only post placement
has none before the head. Norms count no FLOPs.
"""

from __future__ import annotations

from knockout.account.cost import Cost, table
from knockout.declare.architecture import Architecture
from knockout.declare.parts import (
    DynamicTanhNorm,
    EncoderDecoderSkeleton,
    LayerNorm,
    NoAttention,
    NoFeedForward,
    NoNorm,
    ParallelBlock,
    PlacedNorm,
    RezeroResidual,
    RmsNorm,
    SerialBlock,
)


def block_norm_cost(architecture: Architecture) -> Cost:
    """All norms of one block, and ReZero's gates: one of either a branch, two norms in sandwich placement."""
    gate = Cost(1, 1) if isinstance(architecture.residual, RezeroResidual) else Cost()
    norms = _one(architecture) * (2 if _placement(architecture) == "sandwich" else 1)
    return (norms + gate) * num_branches(architecture)


def final_norm_cost(architecture: Architecture) -> Cost:
    """The norm before the head."""
    return Cost() if _placement(architecture) == "post" else _one(architecture)


def num_branches(architecture: Architecture) -> int:
    """How many times a block joins something to the stream."""
    present = (not isinstance(architecture.attention, NoAttention), not isinstance(architecture.ffn, NoFeedForward))
    match architecture.block:
        case SerialBlock():
            return sum(present) + isinstance(architecture.skeleton, EncoderDecoderSkeleton)
        case ParallelBlock():
            return int(any(present))


def _placement(architecture: Architecture) -> str | None:
    norm = architecture.norm
    return norm.placement if isinstance(norm, PlacedNorm) else None


def _one(architecture: Architecture) -> Cost:
    gain_and_bias = table(2 if architecture.bias else 1, architecture.width)
    match architecture.norm:
        case LayerNorm():
            return gain_and_bias
        case RmsNorm():
            return table(1, architecture.width)
        case DynamicTanhNorm():
            return gain_and_bias + Cost(1, 1)
        case NoNorm():
            return Cost()
