"""Which objective, skeleton and attention can stand together.

The invariant: no network can see the tokens that its objective asks for, but for the one experiment that is about
that: a decoder without a mask on the next token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from knockout.declare.base import Conflict
from knockout.declare.parts import (
    Attention,
    DecoderSkeleton,
    DeepnormResidual,
    DepthScaledInit,
    EncoderDecoderSkeleton,
    EncoderSkeleton,
    MaskedObjective,
    NextTokenObjective,
    NoAttention,
    ParallelBlock,
    PrefixObjective,
    WindowAttention,
)
from knockout.declare.parts.attention import Scores

if TYPE_CHECKING:
    from knockout.declare.architecture import Architecture


def skeleton_conflicts(a: Architecture, *, layers: Sequence[Architecture]) -> Iterator[Conflict]:
    """What cannot stand together in an architecture whose blocks are `layers`."""
    if a.context < 2 and not isinstance(a.objective, NextTokenObjective):
        yield "context", a.context, f"the objective {a.objective.kind} needs a context of 2 tokens at least"
    attentions = [layer.attention for layer in layers]
    yield from _objective_conflicts(a, attentions=attentions)
    match a.skeleton:
        case DecoderSkeleton():
            return
        case EncoderSkeleton():
            yield from _encoder_conflicts(a, attentions=attentions)
        case EncoderDecoderSkeleton():
            yield from _encoder_decoder_conflicts(a, layers=layers)


def takes_prefix(attention: Attention) -> bool:
    """True where the first tokens can be shown to all others: scores under a causal mask, or no exchange at all."""
    return isinstance(attention, NoAttention) or (
        isinstance(attention, Scores) and attention.causal and not isinstance(attention, WindowAttention)
    )


def opens(attention: Attention) -> bool:
    """True for attention whose causal mask is a setting, so that it can do without."""
    return "causal" in type(attention).model_fields


def _objective_conflicts(a: Architecture, *, attentions: Sequence[Attention]) -> Iterator[Conflict]:
    match a.objective:
        case MaskedObjective(masked=masked, random=random):
            if not isinstance(a.skeleton, EncoderSkeleton):
                rule = f"masked tokens are guessed from both sides, so skeleton must be encoder, and is {a.skeleton.kind}"
                yield "objective.kind", "masked", rule
            if masked == 0.0:
                rule = "the mask must stand for some of the hidden tokens, or its vector is never trained; over 0"
                yield "objective.masked", masked, rule
            if masked + random > 1.0:
                rule = f"masked {masked} and random {random} are shares of the hidden tokens, together over 1"
                yield "objective.random", random, rule
        case PrefixObjective() if isinstance(a.skeleton, DecoderSkeleton):
            closed = next((attention for attention in attentions if not takes_prefix(attention)), None)
            if closed is not None:
                rule = f"a prefix needs attention with a causal mask that it can open, and attention is {closed.kind}"
                yield "objective.kind", "prefix", rule if closed.causal else f"{rule} with causal false"
        case _:
            return


def _encoder_conflicts(a: Architecture, *, attentions: Sequence[Attention]) -> Iterator[Conflict]:
    if not isinstance(a.objective, MaskedObjective):
        rule = f"an encoder sees the tokens that the objective {a.objective.kind} asks for; it can only learn masked ones"
        yield "skeleton.kind", "encoder", rule
    for attention in attentions:
        if attention.causal and not isinstance(attention, NoAttention):
            rule = f"an encoder reads both sides, and attention {attention.kind} reads the past alone; set causal to false"
            yield "skeleton.kind", "encoder", rule
            return


def _encoder_decoder_conflicts(a: Architecture, *, layers: Sequence[Architecture]) -> Iterator[Conflict]:
    where, kind = "skeleton.kind", "encoder_decoder"
    if not isinstance(a.objective, PrefixObjective):
        yield where, kind, f"the first stack reads a prefix, so objective must be prefix, and is {a.objective.kind}"
    if not opens(a.attention):
        yield where, kind, f"the first stack reads both sides, and attention {a.attention.kind} can only read the past"
    if not all(layer.attention.causal for layer in layers):
        yield where, kind, "the second stack predicts the rest token by token, so attention.causal must be true"
    if a.width % a.heads:
        yield "heads", a.heads, f"{a.heads} heads do not divide width {a.width}, as those between the stacks must"
    if any(isinstance(layer.block, ParallelBlock) for layer in layers):
        yield "block.kind", "parallel", "the second stack has three branches in turn, so block must be serial"
    if a.depth == 0:
        yield "depth", 0, "the first stack is read in the blocks of the second, so there must be one at least"
    if any(isinstance(layer.residual, DeepnormResidual) for layer in [a, *layers]):
        yield "residual.kind", "deepnorm", "deepnorm's constants here are those of one stack, and there are two"
    if isinstance(a.init, DepthScaledInit):
        yield "init.kind", a.init.kind, f"{a.init.kind} has constants for one stack, and there are two"
