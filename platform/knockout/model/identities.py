"""Properties of a declared network that are checked on real tensors in float64.

The invariant: a check sees a small copy with the same parts, so it takes under a second whatever the declared
size.

Legend: B batch, T tokens, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from knockout.declare.architecture import Architecture, head_layout
from knockout.declare.parts import HiddenWidth
from knockout.model.initialise import stable_seed
from knockout.model.network import build

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
    """A copy with the same kind in every slot, small enough to run at once: 4 blocks, 32 tokens at most."""
    layout = head_layout(architecture)
    num_heads = 1 if layout is None else layout.num_heads
    width = architecture.width if architecture.width <= 64 else max(2, 64 // num_heads // 2 * 2) * num_heads
    ffn = architecture.ffn.model_dump()
    if isinstance(architecture.ffn, HiddenWidth):
        ffn |= {"hidden": 2 * width, "expansion": None}
    changes = {
        "width": width,
        "depth": min(architecture.depth, 4),
        "context": min(max(architecture.context, 2), 32),
        "vocabulary": min(max(architecture.vocabulary, 2), 64),
        "dropout": 0.0,
        "ffn": ffn,
        "init": {"kind": "gpt2", "std": width**-0.5},
    }
    return Architecture.model_validate({**architecture.model_dump(), **changes})


def _replace_after(cut: int, tokens_BT: Tensor, *, vocabulary: int, generator: torch.Generator) -> Tensor:
    offset_BT = torch.randint(1, vocabulary, tokens_BT.shape, generator=generator)
    offset_BT[:, : cut + 1] = 0
    return (tokens_BT + offset_BT) % vocabulary
