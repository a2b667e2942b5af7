"""Schemes of first weights and of learning rates, against the papers' numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from knockout.declare.architecture import Architecture
from knockout.declare.parts import DeepnormResidual, LatentAttention
from knockout.model import build
from knockout.model.initialise import initialise, learning_of, logit_factor, stable_seed

Declare = Callable[..., Architecture]
MOE = {"kind": "moe", "experts": 4, "top_k": 2}
NORMLESS = {"norm": {"kind": "none"}, "init": {"kind": "depth_scaled"}}


def matrices(network: nn.Module) -> dict[str, Tensor]:
    """Weights of maps and tables; a set of experts has its biases in one tensor too."""
    return {name: value for name, value in network.named_parameters() if value.ndim >= 2 and name.endswith("weight")}


def assert_deviation(weight: Tensor, expected: float, name: str) -> None:
    assert weight.std().item() == pytest.approx(expected, rel=5 / math.sqrt(2 * weight.numel())), name


def test_small_weights_have_one_deviation_whatever_their_place(declare: Declare) -> None:
    network = build(declare(width=128, depth=3, vocabulary=99, init={"kind": "small"}, head={"kind": "untied"}), seed=0)
    for name, weight in matrices(network).items():
        assert_deviation(weight, math.sqrt(2 / (128 + 4 * 128)), name)  # Xavier's for a map from d to 4d


@pytest.mark.parametrize("head", ["tied", "untied"])
def test_t_fixup_is_xavier_scaled_with_depth(declare: Declare, head: str) -> None:
    network = build(declare(width=128, depth=4, vocabulary=300, head={"kind": head}, **NORMLESS), seed=0)
    for name, weight in matrices(network).items():
        outputs, inputs = weight.shape
        xavier = math.sqrt(2 / (inputs + outputs))
        match name.split(".")[-2]:
            case "embedding" | "position":
                expected = 128**-0.5 * (9 * 4) ** -0.25
            case "query" | "key" | "head":
                expected = xavier
            case _:
                expected = 0.67 * 4**-0.25 * xavier
        assert_deviation(weight, expected, name)


def test_t_fixup_trains_without_norms_at_a_depth_where_plain_xavier_explodes(declare: Declare) -> None:
    architecture = declare(width=32, depth=48, **NORMLESS)
    tokens_BT = torch.randint(11, (4, 12), generator=torch.Generator().manual_seed(0))
    network = build(architecture, seed=0)
    stream_BTD = network.embedding(tokens_BT)
    logits_BTV = network(tokens_BT).logits_BTV
    assert logits_BTV.isfinite().all()
    assert logits_BTV.abs().max() < 20
    with torch.no_grad():
        for name, weight in matrices(network).items():
            if name.split(".")[-2] in ("value", "output", "up", "down"):
                weight /= 0.67 * 48**-0.25
    assert network(tokens_BT).logits_BTV.abs().max() > 100 * stream_BTD.abs().max()


def test_mup_at_its_base_width_is_gpt2_bit_for_bit(declare: Declare) -> None:
    one = build(declare(init={"kind": "mup", "base_width": 16}, ffn=MOE), seed=0).state_dict()
    other = build(declare(ffn=MOE), seed=0).state_dict()
    assert all(torch.equal(one[name], other[name]) for name in other)
    assert logit_factor(declare(init={"kind": "mup", "base_width": 16})) == 1.0


# Yang et al. 2022, table 8, with width 8 times the base: variance of a map from width to width falls with its inputs.
def test_mup_scales_first_weights_with_the_width(declare: Declare) -> None:
    init = {"kind": "mup", "base_width": 32, "std": 0.04}
    architecture = declare(width=256, depth=2, heads=8, vocabulary=99, ffn=MOE, init=init, head={"kind": "untied"})
    for name, weight in matrices(build(architecture, seed=0)).items():
        match name.split(".")[-2]:
            case "embedding" | "position" | "head":
                expected = 0.04
            case "router":
                expected = 0.04 / 8
            case "output" | "down":
                expected = 0.04 / math.sqrt(8) / math.sqrt(2 * 2)
            case _:
                expected = 0.04 / math.sqrt(8)
        assert_deviation(weight, expected, name)


def test_mup_divides_logits_by_the_ratio_of_widths(declare: Declare) -> None:
    base, wide = declare(), declare(init={"kind": "mup", "base_width": 4})
    assert logit_factor(wide) == 0.25
    network, scaled = build(base, seed=0), build(wide, seed=0)
    scaled.load_state_dict(network.state_dict())
    tokens_BT = torch.randint(11, (2, 12), generator=torch.Generator().manual_seed(0))
    assert torch.allclose(scaled(tokens_BT).logits_BTV, network(tokens_BT).logits_BTV / 4)


def test_mup_gives_maps_of_the_width_a_slower_rate_and_nothing_else(declare: Declare) -> None:
    architecture = declare(
        init={"kind": "mup", "base_width": 4}, ffn=MOE, norm={"kind": "dynamic_tanh"}, head={"kind": "untied"}
    )
    network = build(architecture, seed=0)
    factors = {name: learning.rate_factor for name, learning in learning_of(network, architecture=architecture).items()}
    slow = {name for name, factor in factors.items() if factor == 0.25}
    assert slow == {name for name in matrices(network) if name.startswith("blocks")}
    assert set(factors.values()) == {0.25, 1.0}


def test_mup_treats_the_stack_that_reads_a_prefix_as_the_other_one(declare: Declare) -> None:
    two_stacks = {"skeleton": {"kind": "encoder_decoder", "encoder_depth": 1}, "objective": {"kind": "prefix"}}
    architecture = declare(init={"kind": "mup", "base_width": 4}, **two_stacks)
    learning = learning_of(build(architecture, seed=0), architecture=architecture)
    assert learning["encoder.0.ffn.up.weight"] == learning["blocks.0.ffn.up.weight"] != learning["embedding.weight"]


def test_mup_slows_the_maps_whose_inputs_grow_with_the_width_and_no_others(each_kind: Architecture) -> None:
    """Yang et al. 2022, table 8, on every kind: what grows is seen on two networks, with heads of one width."""

    def inputs(scale: int) -> tuple[dict[str, int], Architecture]:
        init = {"kind": "mup", "base_width": 16}
        wider = {"width": 16 * scale, "heads": 4 * scale, "init": init}
        architecture = Architecture.model_validate({**each_kind.model_dump(), **wider})
        return {name: weight.shape[-1] for name, weight in build(architecture, seed=0).named_parameters()}, architecture

    if isinstance(each_kind.attention, LatentAttention) or isinstance(each_kind.residual, DeepnormResidual):
        with pytest.raises(ValidationError, match=r"muP|init is mup"):
            inputs(1)
        return
    (narrow, _), (wide, architecture) = inputs(1), inputs(2)
    network = build(architecture, seed=0)
    for name, learning in learning_of(network, architecture=architecture).items():
        is_map = name.startswith(("blocks.", "encoder.")) and network.get_parameter(name).squeeze().ndim >= 2
        grows = is_map and learning.decays and wide[name] > narrow[name]
        assert learning.rate_factor == (0.5 if grows else 1.0), name


def test_mup_keeps_the_first_update_of_the_logits_at_one_size_over_widths(declare: Declare) -> None:
    """The coordinate check of Yang et al. 2022, appendix D: under the standard scheme the update grows with the width."""

    def update(width: int, *, init: dict[str, object]) -> float:
        architecture = declare(width=width, heads=width // 16, init=init)
        network = build(architecture, seed=0)
        learning = learning_of(network, architecture=architecture)
        groups = [
            {"params": [parameter], "lr": 0.003 * learning[name].rate_factor}
            for name, parameter in network.named_parameters()
        ]
        optimizer = torch.optim.Adam(groups)
        tokens_BT = torch.randint(11, (4, 13), generator=torch.Generator().manual_seed(0))
        before_BTV = network(tokens_BT[:, :-1]).logits_BTV.detach()
        for _ in range(3):
            optimizer.zero_grad()
            logits_BTV = network(tokens_BT[:, :-1]).logits_BTV
            nn.functional.cross_entropy(logits_BTV.flatten(0, 1), tokens_BT[:, 1:].flatten()).backward()
            optimizer.step()
        return (network(tokens_BT[:, :-1]).logits_BTV - before_BTV).std().item()

    standard = update(256, init={"kind": "gpt2"}) / update(32, init={"kind": "gpt2"})
    transferred = update(256, init={"kind": "mup", "base_width": 32}) / update(32, init={"kind": "mup", "base_width": 32})
    assert standard > 2.5
    assert 0.5 < transferred < 1.6


def test_rates_gates_and_gains_do_not_decay_and_maps_do(declare: Declare) -> None:
    architecture = declare(
        pattern=[{"attention": {"kind": "selective_ssm"}}, {"attention": {"kind": "lstm"}}],
        residual={"kind": "rezero"},
        norm={"kind": "dynamic_tanh"},
    )
    decaying = {
        name for name, found in learning_of(build(architecture, seed=0), architecture=architecture).items() if found.decays
    }
    assert "blocks.0.attention.log_rate" not in decaying
    assert not [name for name in decaying if "norm" in name or "residual" in name or "bias" in name or name.endswith("skip")]
    assert {"embedding.weight", "blocks.0.attention.input.weight", "blocks.1.attention.cell.weight_hh_l0"} <= decaying


def test_a_part_that_says_its_own_start_is_drawn_by_name_too(declare: Declare) -> None:
    """The depthwise kernel of one layer, drawn here a second time from the seed of its name."""
    network = build(declare(attention={"kind": "selective_ssm"}), seed=5)
    name = "blocks.1.attention.convolution.weight"
    generator = torch.Generator().manual_seed(stable_seed(5, name=name))
    expected = torch.empty(32, 1, 4).uniform_(-0.5, 0.5, generator=generator)
    assert torch.equal(network.get_parameter(name), expected)
    initialise(network, architecture=network.architecture, seed=5)
    assert torch.equal(network.get_parameter(name), expected)
