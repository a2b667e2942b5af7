"""What a user says about a network: flat dimensions, and a slot for every part, a union by `kind`.

The invariant: an `Architecture` that exists can be built. Whatever cannot stand together is refused here, all
of it at once. A new kind is a new class in its slot's union, a case in that slot's builder in `model/`, and
its closed form in `account/`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from knockout.declare.base import Declaration, NonNegative, Positive, conflicts
from knockout.declare.layers import Conflict, LayerSlots, layer_conflicts, slots_of_layer
from knockout.declare.parts import (
    AlibiPosition,
    Attention,
    BlockKind,
    CellMixer,
    DecoderSkeleton,
    DeepnormResidual,
    DepthScaledInit,
    Embedding,
    EncoderDecoderSkeleton,
    EncoderSkeleton,
    FeedForward,
    GeluFeedForward,
    Gpt2Init,
    GroupedAttention,
    Head,
    HiddenWidth,
    Init,
    LatentAttention,
    LayerNorm,
    LearnedEmbedding,
    LearnedPosition,
    LinearAttention,
    MoeFeedForward,
    MultiHeadAttention,
    MupInit,
    NextTokenObjective,
    NoAttention,
    NoFeedForward,
    Norm,
    NtkScaling,
    Objective,
    ParallelBlock,
    PlacedNorm,
    PlainResidual,
    Position,
    Residual,
    RetentionMixer,
    RotaryPosition,
    SelectiveSsmMixer,
    SerialBlock,
    SharedQkvAttention,
    SingleHeadAttention,
    SinusoidalPosition,
    Skeleton,
    TiedHead,
    WindowAttention,
    YarnScaling,
    cell_width,
    feed_forward_of_layer,
    is_gated,
    step_rank,
)
from knockout.declare.parts.attention import Scores
from knockout.declare.skeletons import skeleton_conflicts


class Architecture(Declaration):
    """A decoder-only language model, in full."""

    width: Positive
    """Width of the residual stream, in units."""
    depth: NonNegative
    """Number of blocks; 0 is embedding and head alone."""
    heads: Positive
    """Number of query heads."""
    context: Positive
    """Longest sequence in training, in tokens."""
    vocabulary: Positive
    """Number of different tokens."""
    embedding: Embedding = LearnedEmbedding()
    """How a token becomes a vector."""
    position: Position = LearnedPosition()
    """How the network learns where a token stands."""
    attention: Attention = MultiHeadAttention()
    """How tokens read one another."""
    ffn: FeedForward = GeluFeedForward()
    """What is done at every position alone."""
    residual: Residual = PlainResidual()
    """How a branch joins the stream."""
    norm: Norm = LayerNorm()
    """Which normalisation, and where."""
    head: Head = TiedHead()
    """How a vector becomes logits."""
    bias: bool = True
    """Biases in linear layers and layer norms; the head, the router and RMS norms never have one."""
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Probability of dropping, 0 to under 1: in the embedding, attention weights and branch outputs."""
    init: Init = Gpt2Init()
    """What the weights are before training."""
    block: BlockKind = SerialBlock()
    """In which order a block's two branches run."""
    pattern: Annotated[tuple[LayerSlots, ...], Field(strict=False)] = ()
    """Slots that layers have in place of the above, in turn from the first layer on, repeated over the depth."""
    layers: dict[str, LayerSlots] = {}
    """Slots that single layers ("3") or runs of them ("0-2") have in place of all the above; counted from 0."""
    objective: Objective = NextTokenObjective()
    """What the network is asked about a window of text."""
    skeleton: Skeleton = DecoderSkeleton()
    """Which stacks of blocks there are, and who reads whom."""

    @property
    def causal(self) -> bool:
        """True when no part can see later tokens."""
        return all(layer.attention.causal for layer in distinct_layers(self))

    @property
    def predicts_next(self) -> bool:
        """True when the exam asks for every token from its prefix alone, so that val_loss can be compared with others'."""
        return self.causal and isinstance(self.objective, NextTokenObjective)

    @model_validator(mode="after")
    def _can_be_built(self) -> Self:
        found = list(layer_conflicts(pattern=self.pattern, layers=self.layers, depth=self.depth))
        conflicts(
            "Architecture", found or [*_whole_conflicts(self), *_skeleton_conflicts(self), *_conflicts_of_layers(self)]
        )
        return self


@dataclass(frozen=True)
class HeadLayout:
    """Query heads, key/value heads, and the width of a query and key in each, in units."""

    num_heads: int
    num_kv_heads: int
    head_width: int


def head_layout(architecture: Architecture) -> HeadLayout | None:
    """The heads in which tokens of `architecture` read one another; None where there are none."""
    width, heads = architecture.width, architecture.heads
    match architecture.attention:
        case MultiHeadAttention() | SharedQkvAttention() | LinearAttention() | WindowAttention(kv_heads=None):
            return HeadLayout(heads, heads, width // heads)
        case RetentionMixer():
            return HeadLayout(heads, heads, width // heads)
        case SingleHeadAttention():
            return HeadLayout(1, 1, width)
        case GroupedAttention(kv_heads=int(kv_heads)) | WindowAttention(kv_heads=int(kv_heads)):
            return HeadLayout(heads, kv_heads, width // heads)
        case LatentAttention(nope_width=nope_width, rope_width=rope_width):
            return HeadLayout(heads, heads, nope_width + rope_width)
        case CellMixer() | SelectiveSsmMixer() | NoAttention():
            return None


def rotary_width(architecture: Architecture) -> int | None:
    """Units of a head that rotary positions turn; None where there are no heads."""
    match architecture.attention:
        case LatentAttention(rope_width=rope_width):
            return rope_width
        case _:
            layout = head_layout(architecture)
            return None if layout is None else layout.head_width


def hidden_width(architecture: Architecture) -> int:
    """The feed-forward part's hidden width (in a mixture: each expert's), in units; 0 where there is none.

    By default 4 x width, and 8/3 x width rounded up to a multiple of 8 for gated parts, which keeps their
    parameters near those of an ungated one (Shazeer 2020, section 3.2; Touvron et al. 2023, section 2.2).
    """
    ffn, width = architecture.ffn, architecture.width
    match ffn:
        case NoFeedForward():
            return 0
        case HiddenWidth(hidden=int(hidden)):
            return hidden
        case HiddenWidth(expansion=float(expansion)):
            return round(expansion * width)
        case _ if is_gated(ffn):
            return 8 * math.ceil(width / 3)
        case _:
            return 4 * width


def at_layer(architecture: Architecture, *, layer: int) -> Architecture:
    """What `architecture` is in one layer, counted from 0: the same in all of them, with this layer's own slots."""
    placed = slots_of_layer(layer, pattern=architecture.pattern, layers=architecture.layers)
    slots: dict[str, Any] = {name: found.slot for name, found in placed.items()}
    ffn = feed_forward_of_layer(slots.get("ffn", architecture.ffn), layer=layer)
    return architecture.model_copy(update={**slots, "ffn": ffn, "pattern": (), "layers": {}})


def encoder_layers(architecture: Architecture) -> list[Architecture]:
    """What the layers of an encoder-decoder's first stack are: its own slots without a mask; none in other skeletons."""
    if not isinstance(architecture.skeleton, EncoderDecoderSkeleton):
        return []
    unmasked = architecture.attention.model_copy(update={"causal": False})
    own = {"attention": unmasked, "skeleton": EncoderSkeleton(), "pattern": (), "layers": {}}
    stack = architecture.model_copy(update=own)
    return [at_layer(stack, layer=layer) for layer in range(architecture.skeleton.encoder_depth)]


def distinct_layers(architecture: Architecture) -> list[Architecture]:
    """What the layers are, each kind once and in order of first appearance; of depth 0, what a layer would be."""
    found: list[Architecture] = []
    for layer in range(max(architecture.depth, 1)):
        here = at_layer(architecture, layer=layer)
        if here not in found:
            found.append(here)
    return found


def resolved_hidden(architecture: Architecture) -> Architecture:
    """The same architecture with its default widths as numbers, so that equal networks have equal declarations."""
    pattern = tuple(slots.model_copy(update=_with_widths(slots.given, a=architecture)) for slots in architecture.pattern)
    layers = {
        key: slots.model_copy(update=_with_widths(slots.given, a=architecture)) for key, slots in architecture.layers.items()
    }
    own = _with_widths({"attention": architecture.attention, "ffn": architecture.ffn}, a=architecture)
    return architecture.model_copy(update={**own, "pattern": pattern, "layers": layers})


def _with_widths(slots: dict[str, Any], *, a: Architecture) -> dict[str, Any]:
    """These slots of a layer with numbers for the widths that they leave to a default."""
    here = a.model_copy(update={**slots, "pattern": (), "layers": {}})
    widths: dict[str, dict[str, int | None]] = {}
    match slots.get("attention"):
        case CellMixer() as cell:
            widths["attention"] = {"hidden": cell_width(cell, width=a.width)}
        case SelectiveSsmMixer() as mixer:
            widths["attention"] = {"step_rank": step_rank(mixer, width=a.width)}
        case _:
            pass
    if isinstance(ffn := slots.get("ffn"), HiddenWidth):
        widths["ffn"] = {"hidden": hidden_width(here), "expansion": None}
        if isinstance(ffn, MoeFeedForward) and ffn.first_dense:
            widths["ffn"]["dense_hidden"] = hidden_width(at_layer(here, layer=0))
    return {name: slots[name].model_copy(update=numbers) for name, numbers in widths.items()}


def _whole_conflicts(a: Architecture) -> Iterator[Conflict]:
    """What concerns all layers together."""
    layers = distinct_layers(a)
    if isinstance(a.position, RotaryPosition) and all(head_layout(layer) is None for layer in layers):
        rule = f"rotary positions act inside attention's heads, and attention is {a.attention.kind}"
        yield "position.kind", "rotary", rule
    if any(isinstance(layer.attention, Scores) for layer in layers):
        return
    if isinstance(a.position, AlibiPosition):
        yield "position.kind", "alibi", f"alibi adds to attention's scores, and attention is {a.attention.kind}"
    if isinstance(a.position, RotaryPosition) and isinstance(a.position.scaling, YarnScaling):
        yield "position.scaling.kind", "yarn", f"yarn softens attention's scores, and attention is {a.attention.kind}"


def _skeleton_conflicts(a: Architecture) -> Iterator[Conflict]:
    return skeleton_conflicts(a, layers=distinct_layers(a))


def _conflicts_of_layers(a: Architecture) -> Iterator[Conflict]:
    """What concerns each layer alone, at the path where its slot was declared."""
    seen = set()
    for layer in range(max(a.depth, 1)):
        placed = slots_of_layer(layer, pattern=a.pattern, layers=a.layers)
        here = a.model_copy(update={name: found.slot for name, found in placed.items()})
        for path, value, rule in _conflicts_of_one(here):
            slot, dot, rest = path.partition(".")
            written = placed[slot].path + dot + rest if slot in placed else path
            if (written, rule) not in seen:
                seen.add((written, rule))
                yield written, value, rule


def _conflicts_of_one(a: Architecture) -> Iterator[Conflict]:
    yield from _head_conflicts(a)
    yield from _position_conflicts(a)
    yield from _ffn_conflicts(a)
    yield from _residual_conflicts(a)


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


def _head_conflicts(a: Architecture) -> Iterator[Conflict]:
    layout = head_layout(a)
    if layout and a.width % layout.num_heads and not isinstance(a.attention, LatentAttention):
        yield (
            "heads",
            a.heads,
            f"{a.heads} heads do not divide width {a.width}; heads must be a divisor of width",
        )
    if layout and layout.num_heads % layout.num_kv_heads:
        rule = f"{layout.num_kv_heads} key/value heads do not divide {a.heads} heads; kv_heads must be a divisor"
        yield "attention.kv_heads", layout.num_kv_heads, rule


def _position_conflicts(a: Architecture) -> Iterator[Conflict]:
    match a.position:
        case SinusoidalPosition() if a.width % 2:
            yield "width", a.width, f"sinusoidal positions pair units, so width {a.width} must be even"
        case RotaryPosition():
            yield from _rotary_conflicts(a)
        case _:
            return


def _rotary_conflicts(a: Architecture) -> Iterator[Conflict]:
    width = rotary_width(a)
    if width is None or next(_head_conflicts(a), None):
        return
    if width % 2:
        if isinstance(a.attention, LatentAttention):
            yield "attention.rope_width", width, f"rotary positions rotate pairs, so rope_width {width} must be even"
        else:
            rule = f"rotary positions rotate pairs, so the head width {width} must be even"
            yield "position.kind", "rotary", rule
    yield from _scaling_conflicts(a, width=width)


def _scaling_conflicts(a: Architecture, *, width: int) -> Iterator[Conflict]:
    scaling = a.position.scaling if isinstance(a.position, RotaryPosition) else None
    match scaling:
        case NtkScaling() if width == 2:
            yield "position.scaling.kind", "ntk", "ntk spreads a factor over several pairs, and heads of width 2 have one"
        case YarnScaling(beta_fast=fast, beta_slow=slow) if fast <= slow:
            yield "position.scaling.beta_fast", fast, f"beta_fast {fast} must be over beta_slow {slow}"
        case _:
            return


def _ffn_conflicts(a: Architecture) -> Iterator[Conflict]:
    match a.ffn:
        case HiddenWidth(hidden=int(hidden), expansion=float()):
            yield "ffn.hidden", hidden, "hidden and expansion exclude each other; give one of them"
        case HiddenWidth(expansion=float(expansion)) if round(expansion * a.width) < 1:
            yield (
                "ffn.expansion",
                expansion,
                f"expansion {expansion} of width {a.width} leaves no hidden unit",
            )
        case _:
            pass
    if isinstance(a.ffn, MoeFeedForward):
        yield from _mixture_conflicts(a.ffn, depth=a.depth)


def _mixture_conflicts(moe: MoeFeedForward, *, depth: int) -> Iterator[Conflict]:
    if moe.top_k > moe.experts:
        yield "ffn.top_k", moe.top_k, f"top_k {moe.top_k} is more than the {moe.experts} experts there are"
    if moe.first_dense > depth:
        yield "ffn.first_dense", moe.first_dense, f"first_dense {moe.first_dense} is more than the {depth} layers there are"
    if moe.dense_hidden is not None and moe.first_dense == 0:
        yield "ffn.dense_hidden", moe.dense_hidden, "dense_hidden is for the first_dense layers, and there are none"
