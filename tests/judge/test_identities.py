"""Claims decided on tensors: every row of the claims' table, verdicts that follow the file, and independent computations."""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from knockout.declare.architecture import Architecture
from knockout.declare.calculation import Identity, Worked
from knockout.declare.claims_file import SMALL, LoadedClaim, load_claims
from knockout.declare.properties import Property
from knockout.judge.calculated import CalculatedVerdict
from knockout.judge.identities import decide_identity
from knockout.model.properties import CHECKS, Finding, check
from knockout.model.properties.worked import worked_step

ROWS = [
    "T5.2-shift",
    "T5.2-wave",
    "T5.2-bounded",
    "T5.2-rope",
    "T5.4-blind",
    "T6.2-rows",
    "T6.2-qkv",
    "T6.2-scale",
    "T6.3-heads",
    "T6.4-causal",
    "T6.6-worked",
    "T7.1-unroll",
    "T7.2-norm01",
    "T8.4-collapse",
    "T8.6-linear",
    "T9.4-argmax",
    "T9.5-transpose",
    "T10.2-grad",
    "T11.2-cache",
    "T11.2-q",
    "T14.3-local",
    "T16.3-flash",
    "T16.4-rms",
    "T16.4-deepnorm",
    "T16.5-swiglu",
    "L1.5-memory",
    "L2.2-diagonal",
]
"""The ids of the claims that both documents make about identities."""

WRONG = {
    "T5.2-wave",
    "T5.2-rope.nearer",
    "T5.4-blind.masked",
    "T5.4-blind.masked-last",
    "T5.4-blind.scores",
    "T6.2-qkv",
    "T6.3-heads.output",
    "T6.6-worked",
    "T6.6-worked.outputs-1",
    "T6.6-worked.transposed",
    "T7.1-unroll.post-norm",
    "T8.4-collapse.network",
    "T8.6-linear",
    "T8.6-linear.attention",
    "T8.6-linear.no-attention",
    "T8.6-linear.no-norm",
    "T8.6-linear.norm",
    "T10.2-grad.mean",
    "T11.2-q.unmasked",
    "T16.4-deepnorm",
    "T16.4-deepnorm.normed",
    "T16.4-rms.deviation",
    "T16.5-swiglu.order",
    "L1.5-memory.left",
}
"""Readings that textbooks and the papers contradict."""


@pytest.fixture(scope="module")
def claims() -> dict[str, LoadedClaim]:
    return {item.claim.id: item for item in load_claims() if item.kind == "identity"}


@pytest.fixture(scope="module")
def verdicts(claims: dict[str, LoadedClaim]) -> dict[str, CalculatedVerdict]:
    return {name: decide_identity(item) for name, item in claims.items()}


def changed(loaded: LoadedClaim, **expect: Any) -> LoadedClaim:
    claim = loaded.claim.model_copy(update={"expect": loaded.claim.expect.model_copy(update=expect)})
    return LoadedClaim(claim, loaded.architectures)


def found(name: Property, **changes: Any) -> Finding:
    return check(name, architecture=Architecture.model_validate({**SMALL, **changes}))


@pytest.mark.parametrize("row", ROWS)
def test_every_identity_of_the_documents_is_a_claim(row: str, claims: dict[str, LoadedClaim]) -> None:
    assert row in claims
    assert claims[row].claim.document == row[0]


def test_the_wrong_statements_are_the_refuted_ones(verdicts: dict[str, CalculatedVerdict]) -> None:
    assert {name for name, made in verdicts.items() if made.verdict == "refuted"} == WRONG


def test_every_property_is_a_function_and_serves_a_claim(claims: dict[str, LoadedClaim]) -> None:
    assert set(CHECKS) == set(get_args(Property))
    used = {item.claim.expect.property for item in claims.values() if isinstance(item.claim.expect, Identity)}
    assert used == set(CHECKS)


def test_a_property_that_is_said_to_hold_or_not_decides_the_verdict(
    claims: dict[str, LoadedClaim], verdicts: dict[str, CalculatedVerdict]
) -> None:
    properties = {name: item for name, item in claims.items() if isinstance(item.claim.expect, Identity)}
    for name, item in properties.items():
        other = decide_identity(changed(item, holds=not verdicts[name].stated))
        assert {other.verdict, verdicts[name].verdict} == {"supported", "refuted"}
        assert other.detail == verdicts[name].detail


def test_a_printed_number_of_the_example_decides_the_verdict(
    claims: dict[str, LoadedClaim], verdicts: dict[str, CalculatedVerdict]
) -> None:
    worked = {name: item for name, item in claims.items() if isinstance(item.claim.expect, Worked)}
    assert len(worked) == 19
    for name, item in worked.items():
        assert decide_identity(changed(item, value=verdicts[name].computed)).verdict == "supported"
    row = worked["T6.6-worked"]
    assert decide_identity(changed(row, value=[0.670, 0.330, 0])).verdict == "supported"
    assert decide_identity(changed(row, value=[0.670, 0.330])).verdict == "refuted"


@pytest.mark.parametrize("name", [name for name in get_args(Property) if name != "scaling_keeps_the_gradient"])
def test_no_property_is_a_near_thing(name: Property, claims: dict[str, LoadedClaim]) -> None:
    items = [item for item in claims.values() if isinstance(e := item.claim.expect, Identity) and e.property == name]
    for item in items:
        seen = check(name, architecture=item.architectures[0])
        assert math.isfinite(seen.measured)
        if seen.holds and name not in ("sinusoidal_is_bounded", "layer_norm_standardises", "softmax_passes_a_gradient"):
            assert seen.measured < 1e-11 or name == "every_head_scores_all_pairs"
        elif not seen.holds:
            assert seen.measured > 1e-2 or name == "argmax_passes_a_gradient"


def test_the_example_agrees_with_arithmetic_by_hand_and_with_torchs_layer(verdicts: dict[str, CalculatedVerdict]) -> None:
    weight = math.exp(1 / math.sqrt(2)) / (math.exp(1 / math.sqrt(2)) + 1)
    assert verdicts["T6.6-worked"].computed == pytest.approx([weight, 1 - weight, 0])
    assert verdicts["T6.6-worked.outputs-1"].computed == pytest.approx([2 * weight, 2 - 2 * weight])
    layer = nn.MultiheadAttention(4, 2, bias=False, batch_first=True, dtype=torch.float64)
    unit = torch.eye(4, dtype=torch.float64)
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.cat((unit, unit[[1, 0, 2, 3]], 2 * unit)))
        layer.out_proj.weight.copy_(unit)
        hidden = torch.ones(3, 3, dtype=torch.bool).triu(1)
        x_BTD = unit[None, :3]
        read_BTD, _ = layer(x_BTD, x_BTD, x_BTD, attn_mask=hidden, need_weights=False)
    ours_TD = torch.cat([worked_step("outputs", head=head) for head in (1, 2)], dim=-1)
    torch.testing.assert_close(ours_TD, read_BTD[0])


def test_wavelengths_are_those_of_the_formula(verdicts: dict[str, CalculatedVerdict]) -> None:
    longest = 2 * math.pi * 10000 ** (2 * 6143 / 12288)
    assert f"{2 * math.pi:.2f} positions at i = 0" in verdicts["T5.2-wave"].detail
    assert f"{longest:,.0f} at i = 6,143" in verdicts["T5.2-wave"].detail


def test_unscaled_scores_deviate_by_the_root_of_the_head_width() -> None:
    for width in (128, 512):
        detail = found("scaling_keeps_the_gradient", width=width).detail
        deviation = float(detail.partition("deviate by ")[2].partition(",")[0])
        assert deviation == pytest.approx(math.sqrt(width / 4), rel=0.05)
    assert not found("scaling_keeps_the_gradient", width=16).holds


def test_positions_give_the_order_away() -> None:
    unmasked = {"kind": "multi_head", "causal": False}
    for kind, blind in {"none": True, "learned": False, "sinusoidal": False, "rotary": False, "alibi": False}.items():
        seen = found("order_only_permutes_outputs", attention=unmasked, position={"kind": kind})
        # Reversing the order leaves distances as they are: ALiBi without a mask sees no more.
        assert seen.holds == (blind or kind == "alibi"), kind


@pytest.mark.parametrize("position", ["learned", "rotary", "none"])
@pytest.mark.parametrize("attention", ["multi_head", "single_head", "linear"])
def test_the_cache_claim_can_be_asked_of_other_kinds(attention: str, position: str) -> None:
    assert found("cached_equals_recomputed", attention={"kind": attention}, position={"kind": position}).holds


def test_a_parallel_block_adds_up_as_well_and_one_without_residuals_does_not() -> None:
    assert found("stream_sums_the_increments", block={"kind": "parallel"}).holds
    assert not found("stream_sums_the_increments", residual={"kind": "none"}).holds


def test_a_tied_tables_gradient_is_that_of_torchs_own_layers() -> None:
    """An embedding and a linear layer of torch's own, tied and not, as a second witness."""
    table = torch.randn(7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    tokens, target = torch.tensor([1, 4, 4]), torch.tensor([4, 2, 0])
    entry, exit_ = table.clone().requires_grad_(), table.clone().requires_grad_()
    F.cross_entropy(F.linear(F.embedding(tokens, entry).tanh(), exit_), target).backward()
    tied = table.clone().requires_grad_()
    F.cross_entropy(F.linear(F.embedding(tokens, tied).tanh(), tied), target).backward()
    assert entry.grad is not None
    assert exit_.grad is not None
    torch.testing.assert_close(tied.grad, entry.grad + exit_.grad)
    assert found("tied_gradient_sums_both_uses").holds
    assert not found("tied_head_is_the_table", head={"kind": "untied"}).holds


def test_one_map_is_no_more_than_two_only_without_an_activation() -> None:
    for kind, one in {"linear": True, "gelu": False, "relu": False}.items():
        for bias in (True, False):
            assert found("two_maps_are_one", ffn={"kind": kind}, bias=bias).holds == one


def test_deepnorms_alpha_is_the_papers() -> None:
    assert "α = 3.761" in found("deepnorm_scales_the_branch", depth=100).detail
    assert abs(200**0.25 - 3.761) < 5e-4
