"""The closed form of attention.

The invariant: equal to what `model/attention.py` builds, and to torch's FlopCounterMode on it.
"""

from __future__ import annotations

from knockout.account.cost import Cost, linear
from knockout.declare.architecture import Architecture, head_layout


def attention_cost(architecture: Architecture, *, context: int) -> Cost:
    """One block's attention at `context` tokens, its norm apart.

    Scores and weighted values cost 2 * context multiply-adds a query unit, 4 FLOPs, over the whole square of
    positions: a causal mask does not halve it, as in PaLM (Chowdhery et al. 2022, appendix B) and in torch's
    counter.
    """
    layout = head_layout(architecture)
    if layout is None:
        return Cost()
    query_width = layout.num_heads * layout.head_width
    kv_width = layout.num_kv_heads * layout.head_width
    width, bias = architecture.width, architecture.bias
    projections = linear(width, query_width, bias=bias) + linear(width, kv_width, bias=bias) * 2
    return projections + Cost(flops_per_token=4 * context * query_width) + linear(query_width, width, bias=bias)


def cached_values_per_token(architecture: Architecture) -> int:
    """Keys and values that one token leaves in all blocks: 2 * depth * key/value heads * head width."""
    layout = head_layout(architecture)
    if layout is None:
        return 0
    return 2 * architecture.depth * layout.num_kv_heads * layout.head_width
