"""The stacks of blocks in a skeleton, how many tokens each works on, and what it costs to read another stack.

The invariant: equal to what `model/encoder_decoder.py` builds, and to torch's FlopCounterMode on it at a window's prefix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from knockout.account.cost import Cost, linear
from knockout.declare.architecture import Architecture, at_layer, encoder_layers
from knockout.declare.parts import PrefixObjective
from knockout.declare.parts.objective import prefix_tokens


@dataclass(frozen=True)
class Stack:
    """Blocks in a row, and the tokens of one window that pass through them."""

    layers: tuple[Architecture, ...]
    num_tokens: int
    num_source: int = 0
    """Tokens of another stack that every token of this one reads; 0 where it reads its own alone."""


def stacks(architecture: Architecture, *, context: int) -> tuple[Stack, ...]:
    """The stacks from the first to the last, for a window of `context` tokens.

    An encoder-decoder's prefix is the share that its exam has; its last token is where the second stack begins.
    """
    layers = tuple(at_layer(architecture, layer=layer) for layer in range(architecture.depth))
    encoder = tuple(encoder_layers(architecture))
    if not encoder:
        return (Stack(layers, context),)
    assert isinstance(architecture.objective, PrefixObjective), "an encoder-decoder reads a prefix"
    prefix = prefix_tokens(architecture.objective.exam_share, num_tokens=context)
    return Stack(encoder, prefix), Stack(layers, context - prefix + 1, num_source=prefix)


def in_window(cost: Cost, *, stack: Stack, context: int) -> Cost:
    """A cost whose FLOPs are for each token of a stack, as FLOPs for each token of the window, rounded."""
    if stack.num_tokens == context:
        return cost
    return replace(cost, flops_per_token=round(cost.flops_per_token * stack.num_tokens / context))


def cross_attention_cost(architecture: Architecture, *, stack: Stack) -> Cost:
    """What reading another stack costs in one block, its norm apart.

    Queries and outputs are made from this stack's tokens, keys and values from the other's; FLOPs are those of a window
    for each token of this stack, rounded.
    """
    if not stack.num_source:
        return Cost()
    maps = linear(architecture.width, architecture.width, bias=architecture.bias) * 2
    scores = 4 * stack.num_source * architecture.width
    keys_and_values = maps.flops_per_token * stack.num_source / stack.num_tokens
    flops = maps.flops_per_token + scores + round(keys_and_values)
    return Cost(2 * maps.parameters, 2 * maps.active, flops, 2 * maps.outputs)
