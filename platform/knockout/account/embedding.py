"""The closed forms of what stands before and after the blocks.

The invariant: a tied table is counted once, as embedding; its product with the stream is the head's work all
the same.
"""

from __future__ import annotations

from knockout.account.cost import Cost, linear, table
from knockout.declare.architecture import Architecture
from knockout.declare.parts import LearnedPosition, TiedHead, UntiedHead


def embedding_cost(architecture: Architecture) -> Cost:
    """The token table."""
    return table(architecture.vocabulary, architecture.width)


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
