"""What the backward pass needs kept of the forward pass: an estimate.

The invariant: the same rule for every kind, so a new one is estimated as soon as its maps are counted. Kept are what maps
put out, what the activation makes of it, what attention has read, and the logits; nothing is computed twice, dropout is
off, and scores are kept only where attention forms them.
"""

from __future__ import annotations

from knockout.account.attention import attention_cost
from knockout.account.feed_forward import feed_forward_cost
from knockout.account.norm import num_branches
from knockout.account.skeleton import Stack, stacks
from knockout.declare.architecture import Architecture, head_layout, hidden_width
from knockout.declare.parts import LatentAttention, MoeFeedForward, is_gated
from knockout.declare.parts.attention import Scores

LOSS_BYTES = 4
"""The loss keeps the logits' softmax in float32."""


def activation_bytes(
    architecture: Architecture, *, context: int | None = None, batch: int = 1, number_bytes: int = 2
) -> int:
    """Bytes for `batch` sequences of `context` tokens (by default the architecture's own), `number_bytes` a number.

    For a GPT block of width D without dropout these are 16 numbers a unit, the 34 bytes of Korthikanti et al. 2022,
    equation 1, less two of dropout's masks, and without the scores that a fused kernel does not keep. Torch keeps the same
    to 3 % there and to 20 % with other heads, norms and gates; for mixtures, linear attention and recurrent mixers, which
    keep more or less than their maps put out, it is right to a factor of 2.5.
    """
    found = stacks(architecture, context=architecture.context if context is None else context)
    kept = sum(_stack(stack, width=architecture.width) for stack in found)
    logits = architecture.vocabulary
    last = (2 * architecture.width + logits) * number_bytes + logits * LOSS_BYTES
    return batch * (kept * number_bytes + last * found[-1].num_tokens)


def _stack(stack: Stack, *, width: int) -> int:
    """Numbers that a stack keeps of one window. Reading another one keeps 5 a token, and 2 a token read."""
    own = sum(_block(layer, context=stack.num_tokens) for layer in stack.layers) * stack.num_tokens
    crossing = width * (5 * stack.num_tokens + 2 * stack.num_source) if stack.num_source else 0
    return own + crossing * len(stack.layers)


def _block(architecture: Architecture, *, context: int) -> int:
    """Numbers that one block keeps of a token. A branch's last output stands for the stream that the next norm keeps."""
    maps = attention_cost(architecture, context=context).outputs + feed_forward_cost(architecture).outputs
    branch_inputs = num_branches(architecture) * architecture.width
    return maps + branch_inputs + _read(architecture, context=context) + _activated(architecture)


def _read(architecture: Architecture, *, context: int) -> int:
    """What the heads read, before the output map, and the weights where they are formed."""
    layout, kind = head_layout(architecture), architecture.attention
    if layout is None:
        return 0
    value_width = kind.value_width if isinstance(kind, LatentAttention) else layout.head_width
    explicit = isinstance(kind, Scores) and kind.computation == "explicit"
    return layout.num_heads * (value_width + (context if explicit else 0))


def _activated(architecture: Architecture) -> int:
    """What stands before the last map of the experts that work on a token, and beside it where a gate is."""
    ffn = architecture.ffn
    experts = ffn.top_k + ffn.shared if isinstance(ffn, MoeFeedForward) else 1
    return hidden_width(architecture) * experts * (2 if is_gated(ffn) else 1)
