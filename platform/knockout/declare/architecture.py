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

from knockout.declare.base import Conflict, Declaration, Depth, Positive, conflicts
from knockout.declare.branches import branch_conflicts, first_dense_conflicts, training_conflicts
from knockout.declare.heads import HeadLayout as HeadLayout
from knockout.declare.heads import head_conflicts, position_conflicts, shared_position_conflicts
from knockout.declare.heads import head_layout as head_layout
from knockout.declare.heads import rotary_width as rotary_width
from knockout.declare.layers import LayerSlots, Placed, layer_conflicts, slots_of_layer
from knockout.declare.parts import (
    Attention,
    BlockKind,
    CellMixer,
    DecoderSkeleton,
    Embedding,
    EncoderDecoderSkeleton,
    EncoderSkeleton,
    FeedForward,
    GeluFeedForward,
    Gpt2Init,
    Head,
    HiddenWidth,
    Init,
    LayerNorm,
    LearnedEmbedding,
    LearnedPosition,
    MoeFeedForward,
    MultiHeadAttention,
    MupInit,
    NextTokenObjective,
    NoFeedForward,
    Norm,
    Objective,
    PlainResidual,
    Position,
    Residual,
    SelectiveSsmMixer,
    SerialBlock,
    Skeleton,
    TiedHead,
    cell_width,
    feed_forward_of_layer,
    is_gated,
    step_rank,
)
from knockout.declare.skeletons import skeleton_conflicts


class Architecture(Declaration):
    """A decoder-only language model, in full."""

    width: Positive
    """Width of the residual stream, in units."""
    depth: Depth
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
        conflicts("Architecture", found or [*_whole_conflicts(self), *_conflicts_of_layers(self)])
        return self


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
    """The same architecture with its default widths as numbers, so that equal networks have equal declarations.

    Under muP a width that grows with the network's stays a share of it, which is what its scheme goes by.
    """
    pattern = tuple(slots.model_copy(update=_with_widths(slots.given, a=architecture)) for slots in architecture.pattern)
    layers = {
        key: slots.model_copy(update=_with_widths(slots.given, a=architecture)) for key, slots in architecture.layers.items()
    }
    own = _with_widths({"attention": architecture.attention, "ffn": architecture.ffn}, a=architecture)
    return architecture.model_copy(update={**own, "pattern": pattern, "layers": layers})


def _with_widths(slots: dict[str, Any], *, a: Architecture) -> dict[str, Any]:
    """These slots of a layer with numbers for the widths that they leave to a default."""
    if isinstance(a.init, MupInit):
        return _with_shares(slots)
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


def _with_shares(slots: dict[str, Any]) -> dict[str, Any]:
    """The feed-forward slot of a layer with its default hidden width as the multiple that it is; a gate's is rounded."""
    match slots.get("ffn"):
        case HiddenWidth(hidden=None, expansion=None) as ffn if not is_gated(slots["ffn"]):
            return {"ffn": ffn.model_copy(update={"expansion": 4.0})}
        case _:
            return {}


def _whole_conflicts(a: Architecture) -> Iterator[Conflict]:
    """What concerns all layers together."""
    layers, first_stack = distinct_layers(a), encoder_layers(a)
    yield from shared_position_conflicts(a, layers=[*first_stack, *layers])
    yield from skeleton_conflicts(a, layers=layers)
    yield from training_conflicts(a, layers=[*first_stack, *layers] if a.depth else first_stack)
    for stack in _places_of_ffn(a):
        for path, (ffn, places) in stack.by_path.items():
            if isinstance(ffn, MoeFeedForward):
                yield from first_dense_conflicts(ffn, path=path, layers=places, depth=stack.depth)


@dataclass(frozen=True)
class _Stack:
    """A stack's feed-forward slots by the path at which each was declared, with the layers that have it."""

    depth: int
    by_path: dict[str, tuple[Any, list[int]]]


def _places_of_ffn(a: Architecture) -> Iterator[_Stack]:
    two_stacks = isinstance(a.skeleton, EncoderDecoderSkeleton)
    by_path: dict[str, tuple[Any, list[int]]] = {} if two_stacks else {"ffn": (a.ffn, [])}
    for layer in range(a.depth):
        found = slots_of_layer(layer, pattern=a.pattern, layers=a.layers).get("ffn", Placed(a.ffn, "ffn"))
        by_path.setdefault(found.path, (found.slot, []))[1].append(layer)
    yield _Stack(a.depth, by_path)
    if isinstance(a.skeleton, EncoderDecoderSkeleton):
        depth = a.skeleton.encoder_depth
        yield _Stack(depth, {"ffn": (a.ffn, list(range(depth)))})


def _conflicts_of_layers(a: Architecture) -> Iterator[Conflict]:
    """What concerns each layer alone, at the path where its slot was declared, each conflict once.

    The architecture's own slots are those of an encoder-decoder's first stack. Elsewhere, one that no layer has is
    judged too, since it would stand as soon as the pattern went.
    """
    placed_layers = [slots_of_layer(layer, pattern=a.pattern, layers=a.layers) for layer in range(max(a.depth, 1))]
    found = [conflict for placed in placed_layers for conflict in _conflicts_of_placed(a, placed=placed)]
    hidden = set.intersection(*(set(placed) for placed in placed_layers))
    two_stacks = isinstance(a.skeleton, EncoderDecoderSkeleton)
    found += [conflict for conflict in _conflicts_of_one(a) if two_stacks or conflict[0].partition(".")[0] in hidden]
    yield from {(path, rule): (path, value, rule) for path, value, rule in found}.values()


def _conflicts_of_placed(a: Architecture, *, placed: dict[str, Placed]) -> Iterator[Conflict]:
    here = a.model_copy(update={name: found.slot for name, found in placed.items()})
    for path, value, rule in _conflicts_of_one(here):
        slot, dot, rest = path.partition(".")
        yield placed[slot].path + dot + rest if slot in placed else path, value, rule


def _conflicts_of_one(a: Architecture) -> Iterator[Conflict]:
    yield from head_conflicts(a)
    yield from position_conflicts(a)
    yield from branch_conflicts(a)
