"""Properties of a declared network that are checked on real tensors in float64.

The invariant: a check sees a small copy with the same parts, so it takes under a second whatever the declared
size.

Legend: B batch, T tokens, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from knockout.declare.architecture import Architecture, distinct_layers, head_layout
from knockout.declare.layers import LayerSlots
from knockout.declare.parts import (
    CellMixer,
    EncoderDecoderSkeleton,
    HiddenWidth,
    MoeFeedForward,
    RezeroResidual,
    SelectiveSsmMixer,
)
from knockout.model.building import build
from knockout.model.initialise import stable_seed

NUM_INPUTS = 4
"""Random sequences that are tried at every cut."""


def future_leak(architecture: Architecture, *, seed: int) -> float:
    """How much a logit can change when only later tokens do: 0 up to rounding (1e-12) for a causal network.

    The largest absolute change, over random inputs and cuts i, of any logit at a position <= i when every
    token after i is replaced by another. Weights are drawn at unit scale (standard deviation width^-1/2), so
    that a leak shows however deep it has to travel.
    """
    small = shrink(architecture)
    network = build(small, seed=seed, dtype=torch.float64).eval()
    generator = torch.Generator().manual_seed(stable_seed(seed, name="future_leak"))
    tokens_BT = torch.randint(small.vocabulary, (NUM_INPUTS, small.context), generator=generator)
    with torch.no_grad():
        logits_BTV = network(tokens_BT).logits_BTV
        changes = []
        for cut in sorted({0, (small.context - 1) // 2, small.context - 2}):
            changed_BT = _replace_after(cut, tokens_BT, vocabulary=small.vocabulary, generator=generator)
            difference_BTV = network(changed_BT).logits_BTV - logits_BTV
            changes.append(difference_BTV[:, : cut + 1].abs().max().item())
    return max(changes)


def shrink(architecture: Architecture) -> Architecture:
    """A copy that holds every kind of layer, small enough to run at once: 32 tokens and, if that suffices, 4 blocks."""
    layers = distinct_layers(architecture)
    of_cross = architecture.heads if isinstance(architecture.skeleton, EncoderDecoderSkeleton) else 1
    num_heads = max(of_cross, *(layout.num_heads for layer in layers if (layout := head_layout(layer))), 1)
    width = architecture.width if architecture.width <= 64 else max(2, 64 // num_heads // 2 * 2) * num_heads
    slots = [_small_slots(layer, width=width) for layer in layers]
    changes = {
        "width": width,
        "depth": max(len(layers), min(architecture.depth, 4)) if architecture.depth else 0,
        "context": min(max(architecture.context, 2), 32),
        "vocabulary": min(max(architecture.vocabulary, 2), 64),
        "dropout": 0.0,
        "init": {"kind": "gpt2", "std": width**-0.5},
        **slots[0],
        "pattern": slots if len(slots) > 1 else [],
        "layers": {},
    }
    if isinstance(architecture.skeleton, EncoderDecoderSkeleton):
        first = {"kind": "encoder_decoder", "encoder_depth": min(architecture.skeleton.encoder_depth, 4)}
        changes |= {
            **_small_slots(architecture, width=width),
            "skeleton": first,
            "pattern": slots,
        }
    return Architecture.model_validate({**architecture.model_dump(), **changes})


def _small_slots(layer: Architecture, *, width: int) -> dict[str, Any]:
    """A layer's slots at a smaller width; a gate that starts closed would hide what the branch sees, and is left out."""
    slots = {name: getattr(layer, name).model_dump() for name in LayerSlots.model_fields}
    match layer.attention:
        case CellMixer():
            slots["attention"]["hidden"] = None
        case SelectiveSsmMixer():
            slots["attention"]["step_rank"] = None
        case _:
            pass
    if isinstance(layer.ffn, HiddenWidth):
        slots["ffn"] |= {"hidden": 2 * width, "expansion": None}
    if isinstance(layer.ffn, MoeFeedForward):
        slots["ffn"] |= {"first_dense": 0, "dense_hidden": None}
    if isinstance(layer.residual, RezeroResidual):
        slots["residual"] = {"kind": "plain"}
    return slots


def _replace_after(cut: int, tokens_BT: Tensor, *, vocabulary: int, generator: torch.Generator) -> Tensor:
    offset_BT = torch.randint(1, vocabulary, tokens_BT.shape, generator=generator)
    offset_BT[:, : cut + 1] = 0
    return (tokens_BT + offset_BT) % vocabulary
