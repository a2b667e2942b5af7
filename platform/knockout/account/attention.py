"""The closed form of the attention slot.

The invariant: equal to what `model/attention.py` builds, and to torch's FlopCounterMode on it where the blocks of a window
and the chunks of linear attention fit the context; where they do not, what is computed is padded to a whole one.
"""

from __future__ import annotations

from knockout.account.cost import Cost, linear, table
from knockout.account.recurrent import cell_cost, retention_cost, state_space_cost
from knockout.declare.architecture import Architecture, HeadLayout, head_layout
from knockout.declare.parts import (
    CellMixer,
    LatentAttention,
    LinearAttention,
    NoAttention,
    RetentionMixer,
    SelectiveSsmMixer,
    SharedQkvAttention,
    WindowAttention,
)
from knockout.declare.parts.attention import HeadScores


def attention_cost(architecture: Architecture, *, context: int) -> Cost:
    """One block's attention slot at `context` tokens, its norms around the branch apart.

    Scores and weighted values cost one multiply-add a query and key and unit, 2 FLOPs, over the whole square of positions:
    a causal mask does not halve it, as in PaLM (Chowdhery et al. 2022, appendix B) and in torch's counter. Nor does packing
    by documents, whose mask hides more of the same square; the borders of recurrent mixers are no matrix products.
    """
    match architecture.attention:
        case NoAttention():
            return Cost()
        case LatentAttention() as latent:
            return _latent(latent, architecture=architecture, context=context)
        case LinearAttention() as kind:
            return _linear(kind, architecture=architecture, context=context)
        case CellMixer() as mixer:
            return cell_cost(mixer, width=architecture.width, bias=architecture.bias)
        case SelectiveSsmMixer() as mixer:
            return state_space_cost(mixer, width=architecture.width, bias=architecture.bias)
        case RetentionMixer() as mixer:
            return retention_cost(mixer, architecture=architecture, context=context)
        case HeadScores() as kind:
            return _heads(kind, architecture=architecture, context=context)


def _heads(kind: HeadScores, *, architecture: Architecture, context: int) -> Cost:
    layout, width, bias = _layout(architecture), architecture.width, architecture.bias
    query_width = layout.num_heads * layout.head_width
    kv_width = layout.num_kv_heads * layout.head_width
    query, output = linear(width, query_width, bias=bias), linear(query_width, width, bias=bias)
    scores = Cost(flops_per_token=4 * _keys(kind, context=context) * query_width)
    norms = Cost() if kind.qk_norm == "none" else table(2, layout.head_width)
    if isinstance(kind, SharedQkvAttention):
        return query + norms + scores + output
    return query + linear(width, kv_width, bias=bias) * 2 + norms + scores + output


def _keys(kind: HeadScores, *, context: int) -> int:
    """Keys whose score each query forms: a window reads blocks of its own length, its own one and the one before."""
    return min(context, 2 * kind.window) if isinstance(kind, WindowAttention) else context


def _latent(latent: LatentAttention, *, architecture: Architecture, context: int) -> Cost:
    width, heads, bias = architecture.width, architecture.heads, architecture.bias
    key_width = latent.nope_width + latent.rope_width
    if latent.q_rank is None:
        query = linear(width, heads * key_width, bias=False)
    else:
        reduce = linear(width, latent.q_rank, bias=bias)
        query = reduce + table(1, latent.q_rank) + linear(latent.q_rank, heads * key_width, bias=False)
    down = linear(width, latent.kv_rank + latent.rope_width, bias=bias) + table(1, latent.kv_rank)
    up = linear(latent.kv_rank, heads * (latent.nope_width + latent.value_width), bias=False)
    scores = Cost(flops_per_token=2 * context * heads * (key_width + latent.value_width))
    return query + down + up + scores + linear(heads * latent.value_width, width, bias=bias)


def _linear(kind: LinearAttention, *, architecture: Architecture, context: int) -> Cost:
    """A token is added to the state and reads it, 2 products of head width squared, and meets those of its chunk."""
    width, head_width = architecture.width, _layout(architecture).head_width
    met = min(kind.chunk, context) if kind.causal else 0
    return linear(width, width, bias=architecture.bias) * 4 + Cost(flops_per_token=4 * width * (head_width + met))


def _layout(architecture: Architecture) -> HeadLayout:
    layout = head_layout(architecture)
    assert layout is not None, "these kinds have heads"
    return layout
