"""Feed-forward parts, mixtures, embeddings and heads: closed forms against built networks and against sums by hand."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from knockout.account import count
from knockout.declare.architecture import Architecture
from knockout.declare.parts import DenseKind
from knockout.model import build

BATCH, CONTEXT = 5, 12  # 60 tokens, which any number of experts up to 6 divides
BALANCES = [{"kind": "loss"}, {"kind": "bias"}, {"kind": "none"}]
ENCODER: dict[str, Any] = {
    "objective": {"kind": "masked"},
    "skeleton": {"kind": "encoder"},
    "attention": {"kind": "multi_head", "causal": False},
}


def small(**changes: Any) -> Architecture:
    dimensions = {"width": 16, "depth": 3, "heads": 4, "context": CONTEXT, "vocabulary": 11}
    return Architecture.model_validate({**dimensions, **changes})


@st.composite
def mixtures(draw: st.DrawFn) -> Architecture:
    experts = draw(st.integers(2, 6))
    first_dense = draw(st.integers(0, 2))
    ffn = {
        "kind": "moe",
        "experts": experts,
        "top_k": draw(st.integers(1, experts)),
        "shared": draw(st.integers(0, 2)),
        "activation": draw(st.sampled_from(get_args(DenseKind))),
        "routing": {"kind": draw(st.sampled_from(["softmax", "sigmoid"]))},
        "balance": draw(st.sampled_from(BALANCES)),
        "hidden": draw(st.none() | st.integers(1, 40)),
        "first_dense": first_dense,
        "dense_hidden": draw(st.none() | st.integers(1, 40)) if first_dense else None,
    }
    return small(ffn=ffn, bias=draw(st.booleans()))


def built_feed_forward(architecture: Architecture) -> list[int]:
    """Parameters of each layer's feed-forward part."""
    network: Any = build(architecture, seed=0, device="meta")
    return [sum(parameter.numel() for parameter in block.ffn.parameters()) for block in network.blocks]


def counted_flops(architecture: Architecture) -> float:
    counter = FlopCounterMode(display=False)
    with counter:
        build(architecture, seed=0, device="meta")(torch.zeros(BATCH, CONTEXT, dtype=torch.int64, device="meta"))
    return counter.get_total_flops() / (BATCH * CONTEXT)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(mixtures())
def test_mixtures_count_as_they_are_built_layer_by_layer(architecture: Architecture) -> None:
    account = count(architecture)
    assert [layer.feed_forward for layer in account.per_layer] == built_feed_forward(architecture)
    assert account.flops_per_token.forward == counted_flops(architecture)


def test_a_small_deepseek_v3_counts_as_by_hand() -> None:
    """Its layers in small: 1 dense of 40, then 1 shared + 6 routed experts of 10, of which 2 are chosen."""
    ffn = {"kind": "moe", "experts": 6, "top_k": 2, "shared": 1, "activation": "swiglu", "hidden": 10}
    ffn |= {"first_dense": 1, "dense_hidden": 40, "routing": {"kind": "sigmoid"}, "balance": {"kind": "bias"}}
    account = count(small(bias=False, ffn=ffn))
    expert, router, dense = 3 * 16 * 10, 16 * 6, 3 * 16 * 40
    assert [layer.feed_forward for layer in account.per_layer] == [dense, *[router + 7 * expert] * 2]
    assert account.parameters.total - account.parameters.active == 2 * 4 * expert
    without = count(small(bias=False, ffn={"kind": "none"}))
    working = dense + 2 * (router + 3 * expert)
    assert account.flops_per_token.forward - without.flops_per_token.forward == 2 * working


def test_deepseek_v3_at_its_own_size_holds_657_billion_in_feed_forward_parts() -> None:
    """Public config.json: 61 layers of 7168, 3 dense of 18432, then 256 + 1 experts of 2048, a router without bias."""
    ffn = {"kind": "moe", "experts": 256, "top_k": 8, "shared": 1, "activation": "swiglu", "hidden": 2048}
    ffn |= {"first_dense": 3, "dense_hidden": 18432, "routing": {"kind": "sigmoid", "scale": 2.5}}
    dimensions = {"width": 7168, "depth": 61, "heads": 128, "context": 4096, "vocabulary": 129280}
    found = count(Architecture.model_validate({**dimensions, "bias": False, "ffn": ffn})).parameters.feed_forward
    assert found == 3 * 3 * 7168 * 18432 + 58 * (257 * 3 * 7168 * 2048 + 7168 * 256) == 657_758_617_600


@pytest.mark.parametrize("head", ["tied", "untied"])
def test_a_frozen_table_is_held_and_has_no_optimizer_state(head: str) -> None:
    learned, frozen = (count(small(head={"kind": head}, embedding={"kind": kind})) for kind in ("learned", "frozen"))
    assert frozen.parameters == learned.parameters
    assert frozen.flops_per_token.forward == learned.flops_per_token.forward
    assert learned.bytes.optimizer - frozen.bytes.optimizer == 8 * 11 * 16
    network = build(small(head={"kind": head}, embedding={"kind": "frozen"}), seed=0, device="meta")
    counter = FlopCounterMode(display=False)
    with counter:
        network(torch.zeros(BATCH, CONTEXT, dtype=torch.int64, device="meta")).logits_BTV.sum().backward()
    assert frozen.flops_per_token.training == counter.get_total_flops() / (BATCH * CONTEXT)
    trained = sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)
    assert frozen.bytes.optimizer == 8 * trained


def test_of_a_frozen_table_the_masks_vector_is_trained_all_the_same() -> None:
    architecture = small(**ENCODER, embedding={"kind": "frozen"})
    trained = {name: value for name, value in build(architecture, seed=0).named_parameters() if value.requires_grad}
    assert "embedding.mask" in trained
    assert "embedding.weight" not in trained
    assert count(architecture).bytes.optimizer == 8 * sum(value.numel() for value in trained.values())


def test_a_mask_costs_one_vector() -> None:
    masked, plain = count(small(**ENCODER)), count(small())
    assert masked.parameters.embedding == plain.parameters.embedding + 16
    assert masked.flops_per_token == plain.flops_per_token
    held = build(small(**ENCODER), seed=0, device="meta").parameters()
    assert sum(parameter.numel() for parameter in held) == masked.parameters.total
