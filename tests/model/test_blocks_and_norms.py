"""Residuals, norms, their places and the order of branches, against the papers' formulas written out."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from knockout.declare.architecture import Architecture
from knockout.declare.parts import deepnorm_alpha, deepnorm_beta
from knockout.model import build
from knockout.model.block import build_block
from knockout.model.head_position import HeadPosition
from knockout.model.norm import build_final_norm, build_norm

Declare = Callable[..., Architecture]
POST = {"kind": "layer", "placement": "post"}
SANDWICH = {"kind": "rms", "placement": "sandwich"}
PARALLEL = {"kind": "parallel"}


def filled_block(architecture: Architecture) -> Any:
    block = build_block(architecture, position=HeadPosition())
    generator = torch.Generator().manual_seed(31)
    for parameter in block.parameters():
        nn.init.normal_(parameter, generator=generator)
    return block.double()


@pytest.fixture
def x_BTD() -> Tensor:
    return torch.randn(2, 6, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(32))


def test_dynamic_tanh_is_its_formula(declare: Declare, x_BTD: Tensor) -> None:
    norm = build_norm(declare(norm={"kind": "dynamic_tanh"})).double()
    generator = torch.Generator().manual_seed(33)
    for parameter in norm.parameters():
        nn.init.normal_(parameter, generator=generator)
    alpha, gain_D, bias_D = (norm.get_parameter(name) for name in ("alpha", "weight", "bias"))
    e_BTD = torch.exp(2 * alpha * x_BTD)
    assert torch.allclose(norm(x_BTD), gain_D * (e_BTD - 1) / (e_BTD + 1) + bias_D, atol=1e-12)


def test_dynamic_tanh_begins_at_its_alpha_with_gain_1_and_bias_0(declare: Declare) -> None:
    for declared, alpha in (({}, 0.5), ({"alpha": 0.8}, 0.8)):
        weights = build(declare(norm={"kind": "dynamic_tanh", **declared}), seed=0).state_dict()
        assert weights["blocks.0.ffn_norm.alpha"].item() == pytest.approx(alpha)
        assert torch.equal(weights["norm.weight"], torch.ones(16))
        assert not weights["norm.bias"].any()
    assert "norm.bias" not in build(declare(norm={"kind": "dynamic_tanh"}, bias=False), seed=0).state_dict()


def test_sandwich_norms_stand_before_and_after_each_branch_and_before_the_head(declare: Declare, x_BTD: Tensor) -> None:
    block = filled_block(declare(norm=SANDWICH))
    middle_BTD = x_BTD + block.attention_output_norm(block.attention(block.attention_norm(x_BTD)))
    expected_BTD = middle_BTD + block.ffn_output_norm(block.ffn(block.ffn_norm(middle_BTD)))
    assert torch.allclose(block(x_BTD), expected_BTD)
    assert isinstance(build_final_norm(declare(norm=SANDWICH)), nn.RMSNorm)


def test_a_parallel_block_adds_both_branches_of_one_norm(declare: Declare, x_BTD: Tensor) -> None:
    block = filled_block(declare(block=PARALLEL))
    normed_BTD = block.norm(x_BTD)
    assert torch.allclose(block(x_BTD), x_BTD + block.attention(normed_BTD) + block.ffn(normed_BTD))


@pytest.mark.parametrize("missing", ["attention", "ffn"])
def test_a_parallel_block_with_one_branch_is_a_serial_one(declare: Declare, x_BTD: Tensor, missing: str) -> None:
    present = "ffn" if missing == "attention" else "attention"
    parallel, serial = (
        filled_block(declare(block=kind, **{missing: {"kind": "none"}})) for kind in (PARALLEL, {"kind": "serial"})
    )
    renamed = {
        f"{present}_{name}" if name.startswith("norm") else name: value for name, value in parallel.state_dict().items()
    }
    serial.load_state_dict(renamed)
    assert torch.equal(parallel(x_BTD), serial(x_BTD))


def test_a_parallel_block_places_norm_and_residual_around_the_sum(declare: Declare, x_BTD: Tensor) -> None:
    post = filled_block(declare(block=PARALLEL, norm=POST))
    assert torch.allclose(post(x_BTD), post.norm(x_BTD + post.attention(x_BTD) + post.ffn(x_BTD)))
    bare = filled_block(declare(block=PARALLEL, residual={"kind": "none"}, norm={"kind": "none"}))
    assert torch.allclose(bare(x_BTD), bare.attention(x_BTD) + bare.ffn(x_BTD))
    gated = filled_block(declare(block=PARALLEL, residual={"kind": "rezero"}, norm=SANDWICH))
    sum_BTD = gated.attention(gated.norm(x_BTD)) + gated.ffn(gated.norm(x_BTD))
    assert torch.allclose(gated(x_BTD), x_BTD + gated.residual.gate * gated.output_norm(sum_BTD))
    empty = filled_block(declare(block=PARALLEL, attention={"kind": "none"}, ffn={"kind": "none"}))
    assert torch.equal(empty(x_BTD), x_BTD)
    assert not empty.state_dict()


@pytest.mark.parametrize("kind", ["plain", "none", "scaled", "rezero", "deepnorm"])
def test_each_residual_is_its_formula(declare: Declare, x_BTD: Tensor, kind: str) -> None:
    alpha = {"alpha": 0.3} if kind == "scaled" else {}
    block = filled_block(declare(depth=7, norm=POST, ffn={"kind": "none"}, residual={"kind": kind, **alpha}))
    branch_BTD = block.attention(x_BTD)
    joined_BTD = {
        "plain": x_BTD + branch_BTD,
        "none": branch_BTD,
        "scaled": x_BTD + 0.3 * branch_BTD,
        "rezero": x_BTD + (block.attention_residual.gate * branch_BTD if kind == "rezero" else 0),
        "deepnorm": 14**0.25 * x_BTD + branch_BTD,
    }[kind]
    assert torch.allclose(block(x_BTD), block.attention_norm(joined_BTD))


def test_rezero_begins_as_the_identity_and_has_one_number_a_branch(declare: Declare) -> None:
    network = build(declare(residual={"kind": "rezero"}, norm={"kind": "none"}), seed=0)
    x_BTD = torch.randn(2, 6, 16)
    for block in network.blocks:
        assert torch.equal(block(x_BTD), x_BTD)
    gates = {name: value for name, value in network.state_dict().items() if "gate" in name}
    assert set(gates) == {f"blocks.{i}.{branch}_residual.gate" for i in range(2) for branch in ("attention", "ffn")}
    assert all(value.tolist() == [0.0] for value in gates.values())


# Wang et al. 2022, figure 2 and table 1, "decoder-only (e.g., GPT)" with M layers: alpha (2M)^(1/4), beta (8M)^(-1/4).
@pytest.mark.parametrize(
    ("depth", "alpha", "beta"), [(8, 2.0, 0.125**0.5), (2, math.sqrt(2), 0.5), (128, 4.0, 0.03125**0.5)]
)
def test_deepnorms_constants_are_the_papers(depth: int, alpha: float, beta: float) -> None:
    assert deepnorm_alpha(depth=depth) == pytest.approx(alpha)
    assert deepnorm_beta(depth=depth) == pytest.approx(beta)


@pytest.mark.parametrize("ffn", [{"kind": "gelu"}, {"kind": "swiglu"}, {"kind": "moe", "experts": 4, "top_k": 2}])
def test_deepnorm_begins_with_xavier_maps_the_values_the_outputs_and_the_ffns_times_beta(
    declare: Declare, ffn: dict[str, Any]
) -> None:
    network = build(declare(width=128, depth=2, norm=POST, residual={"kind": "deepnorm"}, ffn=ffn), seed=0)
    for name, weight in network.named_parameters():
        if weight.ndim < 2 or name.endswith("bias"):
            continue
        outputs, inputs = weight.shape[-2:]
        gain = 1.0 if name.split(".")[-2] in ("query", "key", "router") else 0.5
        expected = gain * math.sqrt(2 / (inputs + outputs)) if name.startswith("blocks") else 0.02
        assert weight.std().item() == pytest.approx(expected, rel=5 / math.sqrt(2 * weight.numel())), name


@pytest.mark.parametrize(
    ("attention", "small"),
    [
        ({"kind": "multi_head"}, ["value", "output"]),
        ({"kind": "shared_qkv"}, ["shared", "output"]),
        ({"kind": "linear"}, ["value", "output"]),
        ({"kind": "retention"}, ["value", "output"]),
        ({"kind": "gru"}, ["output"]),
        ({"kind": "latent", "kv_rank": 64, "nope_width": 48, "rope_width": 16, "value_width": 32}, ["output"]),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("changes", "gain"),
    [
        ({"norm": POST, "residual": {"kind": "deepnorm"}}, 0.5),
        ({"norm": {"kind": "none"}, "init": {"kind": "depth_scaled"}}, 0.67 * 2**-0.25),
    ],
    ids=["deepnorm", "t-fixup"],
)
def test_what_holds_values_is_made_smaller_in_every_attention(
    declare: Declare, attention: dict[str, Any], small: list[str], changes: dict[str, Any], gain: float
) -> None:
    network = build(declare(width=128, depth=2, attention=attention, ffn={"kind": "none"}, **changes), seed=0)
    for name, weight in network.blocks[0].named_parameters():
        part = name.split(".")[-2]
        if weight.ndim < 2 or part == "cell":
            continue
        outputs, inputs = weight.shape
        groups = [(weight, gain if part in small else 1.0)]
        if part == "kv_up":  # 4 heads of 48 units of a key, then 32 of a value (DeepSeek-AI 2024, equations 41 and 42)
            heads_HUC = weight.unflatten(0, (4, 80))
            groups = [(heads_HUC[:, :48], 1.0), (heads_HUC[:, 48:], gain)]
        for values, factor in groups:
            expected = factor * math.sqrt(2 / (inputs + outputs))
            assert values.std().item() == pytest.approx(expected, rel=5 / math.sqrt(2 * values.numel())), name


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "placement must be post"),
        ({"norm": {"kind": "none"}}, "placement must be post"),
        ({"norm": SANDWICH}, "placement must be post"),
        ({"norm": POST, "block": PARALLEL}, "two branches in turn"),
        ({"norm": POST, "init": {"kind": "mup", "base_width": 8}}, "init is mup"),
        ({"norm": POST, "init": {"kind": "depth_scaled"}}, "init is depth_scaled"),
    ],
)
def test_deepnorm_is_refused_where_its_paper_does_not_reach(declare: Declare, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        declare(residual={"kind": "deepnorm"}, **changes)
    assert declare(residual={"kind": "deepnorm"}, norm=POST, init={"kind": "small"}).init.kind == "small"
