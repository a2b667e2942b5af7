"""What a user says about a network: flat dimensions, and a slot for every part, a union by `kind`.

The invariant: an `Architecture` that exists can be built. Whatever cannot stand together is refused here, all
of it at once. A new kind is a new class in its slot's union, a case in that slot's builder in `model/`, and
its closed form in `account/`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import Field, model_validator

from knockout.declare.base import Declaration, NonNegative, Positive, conflicts
from knockout.declare.parts import (
    Attention,
    Embedding,
    FeedForward,
    GeluFeedForward,
    Gpt2Init,
    GroupedAttention,
    Head,
    HiddenWidth,
    Init,
    LayerNorm,
    LearnedEmbedding,
    LearnedPosition,
    MoeFeedForward,
    MultiHeadAttention,
    NoAttention,
    NoFeedForward,
    Norm,
    PlainResidual,
    Position,
    Residual,
    RotaryPosition,
    SingleHeadAttention,
    SinusoidalPosition,
    SwigluFeedForward,
    TiedHead,
)

Conflict = tuple[str, object, str]


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

    @property
    def causal(self) -> bool:
        """True when no part can see later tokens."""
        return self.attention.causal

    @model_validator(mode="after")
    def _can_be_built(self) -> Self:
        conflicts("Architecture", [*_head_conflicts(self), *_position_conflicts(self), *_ffn_conflicts(self)])
        return self


@dataclass(frozen=True)
class HeadLayout:
    """How attention divides the width: query heads, key/value heads, and the width of each, in units."""

    num_heads: int
    num_kv_heads: int
    head_width: int


def head_layout(architecture: Architecture) -> HeadLayout | None:
    """How the attention of `architecture` divides its width; None where there is no attention."""
    width, heads = architecture.width, architecture.heads
    match architecture.attention:
        case MultiHeadAttention():
            return HeadLayout(heads, heads, width // heads)
        case SingleHeadAttention():
            return HeadLayout(1, 1, width)
        case GroupedAttention(kv_heads=kv_heads):
            return HeadLayout(heads, kv_heads, width // heads)
        case NoAttention():
            return None


def is_gated(ffn: FeedForward) -> bool:
    """True for a feed-forward part whose experts or self have a gate, and so three maps and not two."""
    match ffn:
        case SwigluFeedForward() | MoeFeedForward(activation="swiglu"):
            return True
        case _:
            return False


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


def resolved_hidden(architecture: Architecture) -> Architecture:
    """The same architecture with its hidden width as a number, so that equal networks have equal declarations."""
    if not isinstance(architecture.ffn, HiddenWidth):
        return architecture
    width = {"hidden": hidden_width(architecture), "expansion": None}
    return architecture.model_copy(update={"ffn": architecture.ffn.model_copy(update=width)})


def _head_conflicts(a: Architecture) -> Iterator[Conflict]:
    layout = head_layout(a)
    if layout and a.width % layout.num_heads:
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
    layout = head_layout(a)
    if layout is None:
        yield "position.kind", "rotary", "rotary positions act inside attention, and attention is none"
    elif layout.head_width % 2 and a.width % layout.num_heads == 0:
        rule = f"rotary positions rotate pairs, so the head width {layout.head_width} must be even"
        yield "position.kind", "rotary", rule


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
    match a.ffn:
        case MoeFeedForward(experts=experts, top_k=top_k) if top_k > experts:
            yield "ffn.top_k", top_k, f"top_k {top_k} is more than the {experts} experts there are"
        case _:
            return
