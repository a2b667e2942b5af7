"""ALiBi and the scalings of rotary positions, against the numbers and formulas of their papers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from knockout.declare.architecture import Architecture
from knockout.declare.parts import LinearScaling, NoScaling, NtkScaling, YarnScaling
from knockout.declare.rescale import with_rotary_scaling
from knockout.errors import InputError
from knockout.model import build
from knockout.model.head_position import alibi_slopes
from knockout.model.position import build_head_position
from knockout.model.rotary import RotaryPosition, scaled_frequencies_P, temperature

Declare = Callable[..., Architecture]
ROTARY = {"kind": "rotary", "base": 10000.0}
SCALINGS = [LinearScaling(factor=4.0), NtkScaling(factor=4.0), YarnScaling(factor=4.0, original_context=12)]


def test_alibi_slopes_are_those_of_the_paper() -> None:
    """Press et al. 2022, section 3: 1/2, 1/4 … 1/256 for 8 heads; for 16, interpolated by geometric means."""
    assert alibi_slopes(8) == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
    assert alibi_slopes(16) == pytest.approx([2 ** (-0.5 * head) for head in range(1, 17)])
    assert alibi_slopes(1) == [1 / 256]


def test_alibi_slopes_of_other_numbers_of_heads_are_those_of_the_released_code() -> None:
    """get_slopes(12): the 8 of 8 heads, then every second one of 16 heads'."""
    between = [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]
    assert alibi_slopes(12) == pytest.approx([2.0**-head for head in range(1, 9)] + between)


@pytest.mark.parametrize("causal", [True, False])
def test_alibi_lowers_each_score_by_slope_times_distance(declare: Declare, causal: bool) -> None:
    position = build_head_position(declare(position={"kind": "alibi"}, attention={"kind": "multi_head", "causal": causal}))
    bias_HTS = position.double().score_bias(3, 5, like=torch.zeros(1, dtype=torch.float64))
    assert bias_HTS is not None
    for head, slope in enumerate([1 / 4, 1 / 16, 1 / 64, 1 / 256]):
        for query in range(3):
            for key in range(5):
                assert bias_HTS[head, query, key].item() == -slope * abs(query + 2 - key)


def test_alibi_reads_beyond_its_context_and_holds_no_parameters(declare: Declare) -> None:
    network = build(declare(position={"kind": "alibi"}), seed=0)
    assert network(torch.zeros(1, 50, dtype=torch.int64)).logits_BTV.isfinite().all()
    assert [name for name in network.state_dict() if "position" in name] == []


def test_linear_scaling_puts_a_position_where_a_fraction_of_it_was(declare: Declare) -> None:
    """Chen et al. 2023, equation 4: f'(x, m) = f(x, m / s)."""
    position = {**ROTARY, "scaling": {"kind": "linear", "factor": 4.0}}
    scaled = build_head_position(declare(width=32, position=position)).double()
    plain = build_head_position(declare(width=32, position=ROTARY)).double()
    x_BHTK = torch.randn(1, 1, 1, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    for place in (0, 1, 2, 9):
        assert torch.allclose(scaled(x_BHTK, offset=4 * place), plain(x_BHTK, offset=place), atol=1e-12)


def test_ntk_scaling_changes_the_base_as_the_paper_says() -> None:
    """Peng et al. 2023, equation 16: b' = b s^(|D| / (|D| - 2))."""
    frequencies = scaled_frequencies_P(64, base=10000.0, scaling=NtkScaling(factor=8.0))
    base = 10000 * 8 ** (64 / 62)
    assert frequencies.tolist() == pytest.approx([base ** (-2 * pair / 64) for pair in range(32)])
    plain = [10000 ** (-2 * pair / 64) for pair in range(32)]
    assert frequencies[0].item() == plain[0]
    assert frequencies[-1].item() == pytest.approx(plain[-1] / 8)


def test_yarn_interpolates_by_how_often_a_pair_turns_in_training() -> None:
    """Peng et al. 2023, equations 17 - 20, with alpha 1 and beta 32."""
    found = scaled_frequencies_P(128, base=10000.0, scaling=YarnScaling(factor=16.0, original_context=4096))
    for pair, frequency in enumerate(found.tolist()):
        theta = 10000 ** (-2 * pair / 128)
        turns = 4096 / (2 * math.pi / theta)
        ramp = 0.0 if turns < 1 else 1.0 if turns > 32 else (turns - 1) / (32 - 1)
        assert frequency == pytest.approx((1 - ramp) * theta / 16 + ramp * theta)
    assert found[0] == 1.0
    assert found[-1].item() == pytest.approx(10000 ** (-126 / 128) / 16)


def test_yarns_temperature_is_the_papers_and_can_be_given() -> None:
    """Peng et al. 2023, equation 22: sqrt(1/t) = 0.1 ln(s) + 1."""
    assert math.sqrt(1 / temperature(YarnScaling(factor=16.0, original_context=8))) == pytest.approx(0.1 * math.log(16) + 1)
    assert temperature(YarnScaling(factor=16.0, original_context=8, temperature=0.5)) == 0.5
    assert temperature(LinearScaling(factor=16.0)) == 1.0


@pytest.mark.parametrize("attention", [{"kind": "multi_head"}, {"kind": "multi_head", "scale": 0.25}], ids=str)
def test_yarns_temperature_divides_the_scores(declare: Declare, attention: dict[str, Any]) -> None:
    yarn = {"kind": "yarn", "factor": 1.0, "original_context": 12, "temperature": 0.5}
    softer = declare(attention=attention, position={**ROTARY, "scaling": yarn})
    doubled = declare(attention={**attention, "scale": attention.get("scale", 0.5) * 2}, position=ROTARY)
    tokens_BT = torch.randint(11, (2, 12), generator=torch.Generator().manual_seed(3))
    one, other = (build(a, seed=0, dtype=torch.float64)(tokens_BT).logits_BTV for a in (softer, doubled))
    assert torch.allclose(one, other, atol=1e-12)


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda scaling: scaling.kind)
def test_a_trained_rotary_network_takes_a_scaling_without_retraining(declare: Declare, scaling: Any) -> None:
    trained = build(declare(position=ROTARY, init={"kind": "gpt2", "std": 0.3}), seed=0, dtype=torch.float64)
    scaled = with_rotary_scaling(trained.architecture, scaling=scaling)
    assert scaled.model_copy(update={"position": trained.architecture.position}) == trained.architecture
    longer = build(scaled, seed=1, dtype=torch.float64)
    longer.load_state_dict(trained.state_dict())
    tokens_BT = torch.randint(11, (2, 48), generator=torch.Generator().manual_seed(3))
    difference = (longer(tokens_BT).logits_BTV - trained(tokens_BT).logits_BTV).abs()
    assert difference[:, 0].max() < 1e-12
    assert difference.max() > 1e-3


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda scaling: scaling.kind)
def test_a_factor_of_one_changes_nothing(scaling: Any) -> None:
    one = scaling.model_copy(update={"factor": 1.0})
    plain = scaled_frequencies_P(16, base=500.0, scaling=NoScaling())
    assert torch.allclose(scaled_frequencies_P(16, base=500.0, scaling=one), plain, atol=0, rtol=1e-15)
    assert temperature(one) == 1.0


def test_no_scaling_takes_a_scaling_back(declare: Declare) -> None:
    plain = declare(position=ROTARY)
    scaled = with_rotary_scaling(plain, scaling=LinearScaling(factor=2.0))
    assert with_rotary_scaling(scaled, scaling=NoScaling()) == plain


def test_only_rotary_positions_can_be_scaled(declare: Declare) -> None:
    with pytest.raises(InputError, match="these are learned"):
        with_rotary_scaling(declare(), scaling=LinearScaling(factor=2.0))


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"heads": 8, "position": {**ROTARY, "scaling": {"kind": "ntk", "factor": 2.0}}}, "position.scaling.kind"),
        (
            {
                "attention": {"kind": "linear"},
                "position": {**ROTARY, "scaling": {"kind": "yarn", "factor": 2.0, "original_context": 8}},
            },
            "position.scaling.kind",
        ),
        (
            {
                "position": {
                    **ROTARY,
                    "scaling": {"kind": "yarn", "factor": 2.0, "original_context": 8, "beta_fast": 1.0, "beta_slow": 2.0},
                }
            },
            "position.scaling.beta_fast",
        ),
    ],
)
def test_meaningless_scalings_are_refused(declare: Declare, changes: dict[str, Any], path: str) -> None:
    with pytest.raises(ValidationError) as refused:
        declare(**changes)
    assert [".".join(map(str, error["loc"])) for error in refused.value.errors()] == [path]


def test_layers_with_heads_alike_share_their_tables(declare: Declare) -> None:
    network = build(declare(position=ROTARY, depth=3), seed=0)
    assert len([module for module in network.modules() if isinstance(module, RotaryPosition)]) == 1


def test_each_layer_of_a_hybrid_is_turned_by_its_own_head_width(declare: Declare) -> None:
    pattern = [{"attention": {"kind": "multi_head"}}, {"attention": {"kind": "single_head"}}]
    network = build(declare(position=ROTARY, pattern=pattern), seed=0)
    widths = [module.cosines_TK.shape[1] for module in network.modules() if isinstance(module, RotaryPosition)]
    assert widths == [4, 16]
