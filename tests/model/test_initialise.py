"""First weights: decided by seed and name alone."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from knockout.declare.architecture import Architecture
from knockout.declare.parts import DeepnormResidual, EncoderDecoderSkeleton
from knockout.model import build
from knockout.model.initialise import stable_seed

Declare = Callable[..., Architecture]


def test_the_same_seed_gives_the_same_weights_bit_for_bit(each_kind: Architecture) -> None:
    first, second = build(each_kind, seed=3).state_dict(), build(each_kind, seed=3).state_dict()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_another_seed_gives_other_weights(each_kind: Architecture) -> None:
    first, second = build(each_kind, seed=3).state_dict(), build(each_kind, seed=4).state_dict()
    drawn = [name for name in first if name.rpartition(".")[2].startswith("weight") and first[name].std() > 0]
    assert drawn
    assert not any(torch.equal(first[name], second[name]) for name in drawn)


def test_parts_shared_with_the_default_start_equal(each_kind: Architecture, declare: Declare) -> None:
    one, other = build(each_kind, seed=3).state_dict(), build(declare(), seed=3).state_dict()
    shared = {name for name in one.keys() & other.keys() if one[name].shape == other[name].shape}
    assert "embedding.weight" in shared
    rescaled = (
        each_kind.init != declare().init
        or isinstance(each_kind.residual, DeepnormResidual)
        or isinstance(each_kind.skeleton, EncoderDecoderSkeleton)
    )
    for name in shared:
        # A scheme scales what is drawn, and draws the same.
        scale = other[name].norm() / one[name].norm() if one[name].any() else 1.0
        assert torch.allclose(one[name] * scale, other[name]), name
        if not rescaled:
            assert torch.equal(one[name], other[name]), name


def test_building_leaves_the_global_generator_alone(each_kind: Architecture) -> None:
    before = torch.random.get_rng_state()
    build(each_kind, seed=3)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_dtype_does_not_change_what_is_drawn(declare: Declare) -> None:
    single = build(declare(), seed=3).state_dict()
    double = build(declare(), seed=3, dtype=torch.float64).state_dict()
    assert all(torch.equal(single[name].double(), double[name]) for name in single)


@pytest.mark.parametrize("ffn", [{"kind": "gelu"}, {"kind": "swiglu"}, {"kind": "moe", "experts": 4, "top_k": 2}])
def test_gpt2_scales_the_last_map_of_every_branch(declare: Declare, ffn: dict[str, object]) -> None:
    network = build(declare(width=128, depth=8, ffn=ffn, init={"kind": "gpt2", "std": 0.05}), seed=0)
    for name, weight in network.named_parameters():
        if name.endswith("bias"):
            assert not weight.any(), name
        elif "norm" in name:
            assert torch.equal(weight, torch.ones_like(weight)), name
        else:
            last = name.endswith(("attention.output.weight", "down.weight"))
            expected = 0.05 / math.sqrt(16) if last else 0.05
            deviations = 5 / math.sqrt(2 * weight.numel())
            assert weight.std().item() == pytest.approx(expected, rel=deviations), name
            assert abs(weight.mean().item()) < 5 * expected / math.sqrt(weight.numel()), name


def test_the_seed_of_a_name_is_the_head_of_its_sha256() -> None:
    # printf '7:embedding.weight' | sha256sum | cut -c1-16
    assert stable_seed(7, name="embedding.weight") == int("77b95ca04935643e", 16) >> 1
