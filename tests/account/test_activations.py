"""The estimate of what backward needs kept, against what torch keeps and against a published formula."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from knockout.account.activations import activation_bytes
from knockout.declare.architecture import Architecture
from knockout.model import build

BATCH, CONTEXT = 2, 64
LLAMA = {
    "norm": {"kind": "rms"},
    "ffn": {"kind": "swiglu"},
    "position": {"kind": "rotary"},
    "attention": {"kind": "grouped", "kv_heads": 2},
    "bias": False,
}
LATENT = {"kind": "latent", "q_rank": 32, "kv_rank": 32, "nope_width": 16, "rope_width": 8, "value_width": 16}
KINDS: dict[str, tuple[float, dict[str, Any]]] = {
    "gpt": (0.03, {}),
    "post-norm": (0.03, {"norm": {"kind": "layer", "placement": "post"}}),
    "untied": (0.03, {"head": {"kind": "untied"}}),
    "no-attention": (0.03, {"attention": {"kind": "none"}}),
    "no-ffn": (0.03, {"ffn": {"kind": "none"}}),
    "parallel": (0.1, {"block": {"kind": "parallel"}}),
    "llama": (0.2, LLAMA),
    "latent": (0.2, {"attention": LATENT}),
    "relu, which keeps what it puts out": (0.4, {"ffn": {"kind": "relu"}}),
    "mixture": (0.4, {"ffn": {"kind": "moe", "experts": 4, "top_k": 2}}),
}
"""Changes to a small GPT, and how far the estimate may be from what torch keeps."""


def small(**changes: Any) -> Architecture:
    dimensions = {"width": 128, "depth": 4, "heads": 4, "context": CONTEXT, "vocabulary": 96}
    return Architecture.model_validate({**dimensions, **changes})


def kept_by_torch(architecture: Architecture) -> int:
    """Bytes of every tensor that torch's autograd saves in a forward pass with its loss, each storage once."""
    network = build(architecture, seed=0)
    held = {parameter.untyped_storage().data_ptr() for parameter in (*network.parameters(), *network.buffers())}
    seen: dict[int, tuple[int, torch.Tensor]] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in held and tensor.is_floating_point():
            seen[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    tokens_BT = torch.randint(architecture.vocabulary, (BATCH, CONTEXT), generator=torch.Generator().manual_seed(0))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        F.cross_entropy(network(tokens_BT).logits_BTV.flatten(0, 1), tokens_BT.flatten())
    return sum(size for size, _ in seen.values())


@pytest.mark.parametrize(("within", "changes"), KINDS.values(), ids=list(KINDS))
def test_the_estimate_is_near_what_torch_keeps(within: float, changes: dict[str, Any]) -> None:
    architecture = small(**changes)
    estimate = activation_bytes(architecture, batch=BATCH, number_bytes=4)
    assert estimate == pytest.approx(kept_by_torch(architecture), rel=within)


def test_an_encoders_blocks_count_for_the_tokens_that_it_reads() -> None:
    def kept(depth: int) -> int:
        skeleton = {"kind": "encoder_decoder", "encoder_depth": depth}
        return activation_bytes(small(skeleton=skeleton, objective={"kind": "prefix"}))

    assert kept(2) - kept(1) == CONTEXT // 2 * 128 * (34 - 2)


def test_a_gpt_block_keeps_34_bytes_a_unit_without_dropouts_masks_and_the_scores() -> None:
    """Korthikanti et al. 2022, equation 1: s b h (34 + 5 a s / h) bytes in float16, 2 of them masks, 5 a s / h of scores."""
    one, two = (activation_bytes(small(depth=depth), batch=BATCH) for depth in (1, 2))
    assert two - one == CONTEXT * BATCH * 128 * (34 - 2)


def test_explicit_scores_are_kept_and_grow_with_the_context_squared() -> None:
    fused, explicit = (small(attention={"kind": "multi_head", "computation": how}) for how in ("fused", "explicit"))
    scores = [activation_bytes(explicit, context=c) - activation_bytes(fused, context=c) for c in (32, 64)]
    assert scores == [4 * 2 * 4 * 32**2, 4 * 2 * 4 * 64**2]


def test_experts_that_rest_keep_nothing() -> None:
    few, many = (small(ffn={"kind": "moe", "experts": experts, "top_k": 2}) for experts in (4, 8))
    router = 4 * 4 * 2 * CONTEXT
    assert activation_bytes(many) - activation_bytes(few) == router
