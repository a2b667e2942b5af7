"""Which feed-forward parts, residuals and first weights can stand together, and what a network would have to train.

The invariant: what is refused here could be built, but a number in it would do nothing, or nothing of what it says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from knockout.declare.base import MOST, Conflict
from knockout.declare.parts import (
    CellMixer,
    DeepnormResidual,
    DepthScaledInit,
    FrozenEmbedding,
    HiddenWidth,
    LatentAttention,
    LearnedPosition,
    MaskedObjective,
    MoeFeedForward,
    MupInit,
    NoAttention,
    NoFeedForward,
    NoNorm,
    ParallelBlock,
    PlacedNorm,
    SelectiveSsmMixer,
    TiedHead,
    WindowAttention,
)

if TYPE_CHECKING:
    from knockout.declare.architecture import Architecture


def branch_conflicts(a: Architecture) -> Iterator[Conflict]:
    """What cannot stand together in the branches of one layer."""
    yield from _window_conflicts(a)
    yield from _ffn_conflicts(a)
    yield from _residual_conflicts(a)
    if isinstance(a.init, MupInit):
        yield from _mup_conflicts(a)


def first_dense_conflicts(moe: MoeFeedForward, *, path: str, layers: Sequence[int], depth: int) -> Iterator[Conflict]:
    """What is wrong with the dense layers of a mixture that was declared at `path` for `layers` of a stack of `depth`."""
    first, where = moe.first_dense, f"{path}.first_dense"
    if not first:
        return
    if path.startswith("layers."):
        yield where, first, "first_dense counts the stack's layers from its first; for single layers give a dense kind"
    elif first > depth:
        yield where, first, f"first_dense {first} is more than the {depth} layers there are"
    elif all(layer < first for layer in layers):
        yield where, first, f"first_dense {first} leaves no layer of depth {depth} to the mixture; give a dense kind"
    elif all(layer >= first for layer in layers):
        yield where, first, f"none of the first {first} layers has this mixture, so first_dense does nothing"


def training_conflicts(a: Architecture, *, layers: Sequence[Architecture]) -> Iterator[Conflict]:
    """A network without a parameter that training changes; `layers` are its blocks, none in depth 0."""
    if not isinstance(a.embedding, FrozenEmbedding) or not isinstance(a.head, TiedHead):
        return
    has_norm = not isinstance(a.norm, NoNorm) and not (isinstance(a.norm, PlacedNorm) and a.norm.placement == "post")
    if has_norm or isinstance(a.position, LearnedPosition) or isinstance(a.objective, MaskedObjective):
        return
    if all(isinstance(layer.attention, NoAttention) and isinstance(layer.ffn, NoFeedForward) for layer in layers):
        yield "embedding.kind", "frozen", "the table is frozen and there is no other parameter: nothing to train"


def _window_conflicts(a: Architecture) -> Iterator[Conflict]:
    if isinstance(a.attention, WindowAttention) and a.attention.window == 1:
        rule = "a token that reads itself alone needs no query and no key, and none would be trained; 2 tokens at least"
        yield "attention.window", 1, rule


def _ffn_conflicts(a: Architecture) -> Iterator[Conflict]:
    match a.ffn:
        case HiddenWidth(hidden=int(hidden), expansion=float()):
            yield "ffn.hidden", hidden, "hidden and expansion exclude each other; give one of them"
        case HiddenWidth(expansion=float(expansion)) if expansion * a.width > MOST:
            rule = f"expansion {expansion} of width {a.width} makes more than {MOST} hidden units, which no network has"
            yield "ffn.expansion", expansion, rule
        case HiddenWidth(hidden=None, expansion=None) if 4 * a.width > MOST:
            yield "width", a.width, f"the hidden width, a multiple of {a.width}, is over {MOST} units, which no network has"
        case HiddenWidth(expansion=float(expansion)) if round(expansion * a.width) < 1:
            yield "ffn.expansion", expansion, f"expansion {expansion} of width {a.width} leaves no hidden unit"
        case _:
            pass
    if isinstance(a.ffn, MoeFeedForward):
        yield from _mixture_conflicts(a.ffn)


def _mixture_conflicts(moe: MoeFeedForward) -> Iterator[Conflict]:
    if moe.experts == 1:
        yield "ffn.experts", 1, "a router with one expert has nothing to choose; 2 experts at least, or a dense kind"
    if moe.top_k > moe.experts:
        yield "ffn.top_k", moe.top_k, f"top_k {moe.top_k} is more than the {moe.experts} experts there are"
    if moe.dense_hidden is not None and moe.first_dense == 0:
        yield "ffn.dense_hidden", moe.dense_hidden, "dense_hidden is for the first_dense layers, and there are none"


def _residual_conflicts(a: Architecture) -> Iterator[Conflict]:
    if not isinstance(a.residual, DeepnormResidual):
        return
    if not (isinstance(a.norm, PlacedNorm) and a.norm.placement == "post"):
        yield "residual.kind", "deepnorm", "deepnorm normalises after each addition; the norm's placement must be post"
    if isinstance(a.block, ParallelBlock):
        yield "residual.kind", "deepnorm", "deepnorm's constants are those of two branches in turn, and block is parallel"
    if isinstance(a.init, DepthScaledInit | MupInit):
        rule = f"deepnorm brings its own first weights, and init is {a.init.kind}; choose gpt2 or small for the tables"
        yield "residual.kind", "deepnorm", rule


def _mup_conflicts(a: Architecture) -> Iterator[Conflict]:
    """Widths inside a part that are given as numbers: muP scales a map by how its inputs grow with the width."""
    for path, number, instead in _fixed_widths(a):
        rule = f"muP scales maps by how they grow with the width, and {number} units stay as they are; {instead}"
        yield path, number, rule


def _fixed_widths(a: Architecture) -> Iterator[tuple[str, int, str]]:
    match a.attention:
        case LatentAttention(kv_rank=rank):
            yield "attention.kv_rank", rank, "choose another attention or init"
        case CellMixer(hidden=int(hidden)):
            yield "attention.hidden", hidden, "leave hidden to its default, the width"
        case SelectiveSsmMixer(step_rank=int(rank)):
            yield "attention.step_rank", rank, "leave step_rank to its default, a share of the width"
        case _:
            pass
    if isinstance(a.ffn, HiddenWidth) and a.ffn.hidden is not None:
        yield "ffn.hidden", a.ffn.hidden, "give expansion instead of hidden"
    if isinstance(a.ffn, MoeFeedForward) and a.ffn.dense_hidden is not None:
        yield "ffn.dense_hidden", a.ffn.dense_hidden, "leave dense_hidden to its default, a multiple of the width"
