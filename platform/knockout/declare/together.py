"""What an architecture and a recipe ask of each other.

The invariant: a run whose settings resolve can be trained as both say.
"""

from __future__ import annotations

from collections.abc import Iterator

from knockout.declare.architecture import Architecture
from knockout.declare.base import Conflict
from knockout.declare.layers import Placed, slots_of_layer
from knockout.declare.parts import LinearAttention, MaskedObjective, NextTokenObjective, PrefixObjective
from knockout.declare.recipe import DocumentPacking, Recipe

PARTIES = {"warmup_steps": ("warmup_steps", "tokens", "batch", "context")}
"""Of a conflict that is told at a setting, all settings that take part in it: the one that was set last made it."""


def conflicts_between(architecture: Architecture, *, recipe: Recipe) -> Iterator[Conflict]:
    """What cannot stand together in an architecture and the recipe by which it is trained."""
    steps = recipe.num_steps(context=architecture.context)
    if steps == 0:
        step = f"one step of batch {recipe.batch} × context {architecture.context}"
        yield "tokens", recipe.tokens, f"{recipe.tokens} tokens are less than {step}"
    elif recipe.warmup_steps > steps:
        run = f"the run of {steps} steps ({recipe.tokens} tokens at batch {recipe.batch} × context {architecture.context})"
        rule = f"the warm-up of {recipe.warmup_steps} steps is longer than {run}, whose learning rate never reaches its peak"
        yield "warmup_steps", recipe.warmup_steps, f"{rule}; set warmup_steps to at most {steps}, or give it more tokens"
    if isinstance(recipe.packing, DocumentPacking):
        yield from _packing_conflicts(architecture)


def _packing_conflicts(a: Architecture) -> Iterator[Conflict]:
    asked = "under packing {kind: documents}"
    match a.objective:
        case MaskedObjective():
            rule = f"a hidden end-of-text would show by what its neighbours may read {asked}"
            yield "objective.kind", "masked", f"{rule}; next_token, or packing {{kind: contiguous}}"
        case PrefixObjective():
            rule = f"a window has one prefix, and only its first document would have one {asked}"
            yield "objective.kind", "prefix", f"{rule}; next_token, or packing {{kind: contiguous}}"
        case NextTokenObjective():
            pass
    for placed in _attentions(a):
        if isinstance(placed.slot, LinearAttention) and not placed.slot.causal:
            rule = f"linear attention without a mask sums over the whole window, not over a document as {asked}"
            yield f"{placed.path}.causal", False, f"{rule}; causal true, or packing {{kind: contiguous}}"


def _attentions(a: Architecture) -> list[Placed]:
    """Each attention that a layer has, once, with the path at which it was declared."""
    own = Placed(a.attention, "attention")
    layers = (slots_of_layer(layer, pattern=a.pattern, layers=a.layers) for layer in range(a.depth))
    return list({placed.path: placed for slots in layers for placed in [slots.get("attention", own)]}.values())
