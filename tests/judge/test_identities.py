"""Claims decided on tensors: every row of the claims' table, verdicts that follow the file, and independent computations."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from torch import nn

from knockout.declare.architecture import Architecture
from knockout.declare.calculation import Identity, Worked
from knockout.declare.claims_file import SMALL, LoadedClaim, load_claims
from knockout.declare.problems import tag, union_members
from knockout.declare.properties import Property
from knockout.declare.requirements import REQUIREMENTS, unmet
from knockout.errors import DeclarationError
from knockout.judge.calculation.calculated import CalculatedVerdict
from knockout.judge.calculation.identities import decide_identity
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
    "T7.2-norm01.small",
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
    assert list(CHECKS) == list(REQUIREMENTS) == list(get_args(Property))
    used = {item.claim.expect.property for item in claims.values() if isinstance(item.claim.expect, Identity)}
    assert used == set(CHECKS)


VACUOUS = {
    ("rotary_scores_follow_the_offset", "{}"): "needs rotary positions, and position is learned",
    (
        "rotary_scores_follow_the_offset",
        "{position: {kind: rotary}, attention: {kind: single_head}}",
    ): "heads of width / heads",
    ("two_maps_are_one", "{ffn: {kind: moe, experts: 4, top_k: 2}}"): "two maps, and ffn is moe",
    ("two_maps_are_one", "{ffn: {kind: swiglu}}"): "two maps, and ffn is swiglu",
    ("swiglu_gates_with_either_factor", "{}"): "needs SwiGLU, and ffn is gelu",
    ("keys_come_from_the_key_map", "{attention: {kind: rnn}}"): "attention is rnn",
    ("keys_come_from_the_key_map", "{attention: {kind: multi_head, scale: none}}"): "scale none",
    (
        "order_leaves_scores_unchanged",
        "{attention: {kind: latent, kv_rank: 4, nope_width: 4, rope_width: 2, value_width: 4}}",
    ): "needs multi-head attention, and attention is latent",
    ("order_leaves_scores_unchanged", "{position: {kind: rotary}}"): "position is rotary",
    ("cached_equals_recomputed", "{attention.causal: false}"): "needs the causal mask",
    ("cached_equals_recomputed", "{depth: 0}"): "depth is 0",
    ("stream_is_linear", "{depth: 0}"): "there must be a block",
    ("stream_is_linear", "{residual: {kind: rezero}}"): "gates are closed",
    ("later_tokens_do_not_matter", "{attention: {kind: none}}"): "tokens that read one another",
    ("order_only_permutes_outputs", "{vocabulary: 2}"): "different tokens",
    ("neighbours_read_layer_inputs", "{depth: 1}"): "shows a layer later",
    ("heads_equal_one_wide_head", "{heads: 1}"): "one head is the wide head",
    ("norm_is_linear", "{norm: {kind: none}}"): "norm is none",
    ("tied_gradient_sums_both_uses", "{head: {kind: untied}}"): "needs a tied head",
}


@pytest.mark.parametrize(
    ("asked", "said"), VACUOUS.items(), ids=lambda asked: " ".join(asked) if isinstance(asked, tuple) else ""
)
def test_what_would_hold_of_any_network_or_asks_for_a_part_that_is_not_there_is_refused(
    asked: tuple[str, str], said: str, tmp_path: Path
) -> None:
    file = tmp_path / "mine.yaml"
    expect = f"{{is: identity, property: {asked[0]}, set: {asked[1]}, holds: true}}"
    claim = f"{{id: X1, document: T, section: '1', says: it is so, expect: {expect}}}"
    file.write_text(f"subject: a test\nclaims:\n  - {claim}\n")
    with pytest.raises(DeclarationError) as raised:
        load_claims([file])
    assert all((problem.line, problem.path) == (3, "claims.0.expect.property") for problem in raised.value.problems)
    assert said in str(raised.value)


EVERY_SLOT = ("attention", "ffn", "norm", "residual", "block", "position", "head", "embedding")
NEEDED: dict[str, dict[str, Any]] = {
    "grouped": {"kv_heads": 2},
    "latent": {"kv_rank": 8, "nope_width": 8, "rope_width": 4, "value_width": 8},
    "window": {"window": 3},
    "moe": {"experts": 4, "top_k": 2},
}


def variants() -> list[dict[str, Any]]:
    """Every kind of every slot, and sizes at the edge, each alone and with rotary positions."""
    kinds = [
        {slot: {"kind": kind, **NEEDED.get(kind, {})}}
        for slot in EVERY_SLOT
        for member in union_members(Architecture.model_fields[slot].annotation)
        if (kind := str(tag(member)))
    ]
    edges = [{"depth": 0}, {"depth": 1}, {"context": 1}, {"context": 2}, {"context": 3}, {"vocabulary": 1}, {"heads": 1}]
    both = [
        {"attention": {"kind": "none"}, "ffn": {"kind": "none"}},
        {"bias": False},
        {"attention": {"kind": "multi_head", "causal": False}},
    ]
    layered = [{"pattern": [{"attention": {"kind": "none"}}, {}]}, {"objective": {"kind": "prefix"}}]
    plain = [*kinds, *edges, *both, *layered]
    return [*plain, *({**change, "position": {"kind": "rotary"}} for change in plain if "position" not in change)]


@pytest.mark.parametrize("name", get_args(Property))
def test_what_a_property_does_not_refuse_it_can_decide(name: Property) -> None:
    """New kinds are met on arrival: a property that does not know one refuses it, or comes to a finding."""
    decided = 0
    for change in variants():
        try:
            architecture = Architecture.model_validate({**SMALL, **change})
        except ValidationError:
            continue
        if not [*unmet(name, architecture=architecture)]:
            found = check(name, architecture=architecture)
            assert math.isfinite(found.measured), (name, change)
            decided += 1
    assert decided


def test_without_a_block_attention_is_no_reason() -> None:
    assert "attention come" not in found("stream_is_linear", depth=0).detail


def test_eps_is_not_small_beside_gpt_2s_table(verdicts: dict[str, CalculatedVerdict]) -> None:
    """var / (var + eps) at 0.02^2 and 1e-5."""
    left = float(verdicts["T7.2-norm01.small"].detail.partition("the variance is ")[2].partition(" ")[0])
    assert left == pytest.approx(0.02**2 / (0.02**2 + 1e-5), abs=5e-4)


def test_a_tied_table_is_told_from_maps_of_its_shape() -> None:
    assert found("tied_head_is_the_table", context=29).holds
    assert found("tied_head_is_the_table", vocabulary=128).holds


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
