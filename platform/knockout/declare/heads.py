"""The heads in which tokens read one another, and which heads and positions can stand together.

The invariant: `head_layout` is the one place that says how wide a head is; model, account and refusals read it there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from knockout.declare.base import Conflict
from knockout.declare.parts import (
    AlibiPosition,
    CellMixer,
    GroupedAttention,
    LatentAttention,
    LinearAttention,
    MultiHeadAttention,
    NoAttention,
    NtkScaling,
    RetentionMixer,
    RotaryPosition,
    SelectiveSsmMixer,
    SharedQkvAttention,
    SingleHeadAttention,
    SinusoidalPosition,
    WindowAttention,
    YarnScaling,
)
from knockout.declare.parts.attention import Scores

if TYPE_CHECKING:
    from knockout.declare.architecture import Architecture


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


def shared_position_conflicts(a: Architecture, *, layers: Sequence[Architecture]) -> Iterator[Conflict]:
    """Positions that act inside heads, and no layer of `layers`, which are all there are, has such heads."""
    if isinstance(a.position, RotaryPosition) and all(head_layout(layer) is None for layer in layers):
        rule = f"rotary positions act inside attention's heads, and attention is {a.attention.kind}"
        yield "position.kind", "rotary", rule
    if any(isinstance(layer.attention, Scores) for layer in layers):
        return
    if isinstance(a.position, AlibiPosition):
        yield "position.kind", "alibi", f"alibi adds to attention's scores, and attention is {a.attention.kind}"
    if isinstance(a.position, RotaryPosition) and isinstance(a.position.scaling, YarnScaling):
        yield "position.scaling.kind", "yarn", f"yarn softens attention's scores, and attention is {a.attention.kind}"


def head_conflicts(a: Architecture) -> Iterator[Conflict]:
    """Numbers of heads that do not divide what they should, in one layer."""
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


def position_conflicts(a: Architecture) -> Iterator[Conflict]:
    """Widths that positions cannot pair, and scalings that say nothing, in one layer."""
    match a.position:
        case SinusoidalPosition() if a.width % 2:
            yield "width", a.width, f"sinusoidal positions pair units, so width {a.width} must be even"
        case RotaryPosition():
            yield from _rotary_conflicts(a)
        case _:
            return


def _rotary_conflicts(a: Architecture) -> Iterator[Conflict]:
    width = rotary_width(a)
    if width is None or next(head_conflicts(a), None):
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
