"""The closed forms of what stands before and after the blocks.

The invariant: a tied table is counted once, as embedding; its product with the stream is the head's work all
the same.
"""

from __future__ import annotations

from knockout.account.cost import Cost, linear, table
from knockout.declare.architecture import Architecture
from knockout.declare.parts import (
    FrozenEmbedding,
    LearnedEmbedding,
    LearnedPosition,
    MaskedObjective,
    TiedHead,
    UntiedHead,
)


def embedding_cost(architecture: Architecture) -> Cost:
    """The token table, and the vector of the mask where tokens are masked."""
    tokens = table(architecture.vocabulary, architecture.width)
    return tokens + table(1, architecture.width) if isinstance(architecture.objective, MaskedObjective) else tokens


def frozen_parameters(architecture: Architecture) -> int:
    """Numbers that no training changes, and for which the optimiser keeps nothing."""
    match architecture.embedding:
        case LearnedEmbedding():
            return 0
        case FrozenEmbedding():
            return table(architecture.vocabulary, architecture.width).parameters


def spared_flops(architecture: Architecture) -> int:
    """FLOPs a token that the backward pass does not do: the gradient of a frozen table that the head reads too."""
    frozen = isinstance(architecture.embedding, FrozenEmbedding) and isinstance(architecture.head, TiedHead)
    return head_cost(architecture).flops_per_token if frozen else 0


def position_cost(architecture: Architecture) -> Cost:
    """The position table; only learned positions have one."""
    match architecture.position:
        case LearnedPosition():
            return table(architecture.context, architecture.width)
        case _:
            return Cost()


def head_cost(architecture: Architecture) -> Cost:
    """The map to the logits."""
    product = linear(architecture.width, architecture.vocabulary, bias=False)
    match architecture.head:
        case TiedHead():
            return Cost(flops_per_token=product.flops_per_token)
        case UntiedHead():
            return product
