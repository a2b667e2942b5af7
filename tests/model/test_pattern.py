"""Layers that differ: what each one is, and that network, account and checks see the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from knockout.account import count
from knockout.declare.architecture import Architecture, at_layer, distinct_layers, resolved_hidden
from knockout.declare.document import parse_document
from knockout.declare.settings import defaults
from knockout.errors import DeclarationError
from knockout.model import build
from knockout.model.identities import future_leak, shrink
from knockout.model.state_space import SelectiveSsm

Declare = Callable[..., Architecture]
SSM: dict[str, Any] = {"attention": {"kind": "selective_ssm"}}
HYBRID: dict[str, Any] = {"depth": 8, "pattern": [SSM, SSM, SSM, {}]}
DIMENSIONS = "{width: 16, depth: 4, heads: 4, context: 8, vocabulary: 11, batch: 2, tokens: 1600, learning_rate: 0.1}"


def kinds(architecture: Architecture, slot: str) -> list[str]:
    return [getattr(at_layer(architecture, layer=layer), slot).kind for layer in range(architecture.depth)]


def test_a_pattern_repeats_over_the_depth(declare: Declare) -> None:
    assert kinds(declare(**HYBRID), "attention") == (["selective_ssm"] * 3 + ["multi_head"]) * 2
    assert kinds(declare(**{**HYBRID, "depth": 6}), "attention")[4:] == ["selective_ssm"] * 2


def test_an_entry_for_a_layer_lies_over_the_pattern_slot_by_slot(declare: Declare) -> None:
    layers = {"0-1": {"ffn": {"kind": "relu", "hidden": 8}}, "3": {"attention": {"kind": "none"}}, "7": {}}
    architecture = declare(**HYBRID, layers=layers)
    assert kinds(architecture, "attention")[:4] == ["selective_ssm"] * 3 + ["none"]
    assert kinds(architecture, "ffn") == ["relu"] * 2 + ["gelu"] * 6


def test_without_either_every_layer_is_the_architecture_itself(declare: Declare) -> None:
    architecture = declare(depth=5)
    assert all(at_layer(architecture, layer=layer) == architecture for layer in range(5))
    assert distinct_layers(architecture) == [architecture]


def test_the_network_holds_the_layers_that_were_declared(declare: Declare) -> None:
    layers = {"2": {"norm": {"kind": "rms"}, "residual": {"kind": "rezero"}, "block": {"kind": "parallel"}}}
    network = build(declare(depth=4, pattern=[SSM, {}], layers=layers), seed=0)
    assert [isinstance(block.attention, SelectiveSsm) for block in network.blocks] == [True, False, True, False]
    names = {name.removeprefix("blocks.2.") for name in network.state_dict() if name.startswith("blocks.2.")}
    assert {"norm.weight", "residual.gate"} <= names
    assert not names & {"attention_norm.weight", "norm.bias"}


def test_a_hybrid_counts_as_it_is_built_and_its_layers_add_up(declare: Declare) -> None:
    architecture = declare(**HYBRID, layers={"0": {"ffn": {"kind": "none"}}})
    account = count(architecture)
    built = build(architecture, seed=0, device="meta")
    assert account.parameters.total == sum(parameter.numel() for parameter in built.parameters())
    for layer, block in zip(account.per_layer, built.blocks, strict=True):
        assert layer.total == sum(parameter.numel() for parameter in block.parameters())
    whole = count(declare(depth=1, **SSM)).per_layer[0]
    assert account.per_layer[1] == account.per_layer[2] == whole


def test_a_hybrids_cache_holds_states_and_keys_side_by_side(declare: Declare) -> None:
    network = build(declare(**HYBRID, position={"kind": "rotary"}), seed=0, dtype=torch.float64)
    tokens_BT = torch.randint(11, (2, 12), generator=torch.Generator().manual_seed(3))
    cache = network.new_cache(2, capacity=12)
    pieces = [network(piece_BT, cache=cache).logits_BTV for piece_BT in tokens_BT.split([5, 1, 6], dim=1)]
    assert torch.allclose(torch.cat(pieces, 1), network(tokens_BT).logits_BTV, atol=1e-10)
    assert cache.num_bytes == count(network.architecture, batch=2, cache_bytes=8).kv_cache.bytes


def test_one_layer_without_a_mask_makes_the_whole_network_see_the_future(declare: Declare) -> None:
    unmasked = {"attention": {"kind": "multi_head", "causal": False}}
    leaky = declare(depth=6, **SSM, layers={"5": unmasked})
    assert not leaky.causal
    assert future_leak(leaky, seed=0) > 1e-4
    assert future_leak(declare(**HYBRID), seed=0) < 1e-12
    gated = declare(residual={"kind": "rezero"}, **unmasked)
    assert future_leak(gated, seed=0) > 1e-4


def test_the_small_copy_holds_every_kind_of_layer(declare: Declare) -> None:
    pattern = [{"attention": {"kind": kind}} for kind in ("rnn", "lstm", "gru", "retention", "selective_ssm", "none")]
    small = shrink(declare(width=4096, heads=32, depth=24, pattern=pattern, layers={"3": {"ffn": {"kind": "none"}}}))
    assert len(distinct_layers(small)) == 7
    assert small.width <= 64


def test_default_widths_of_differing_layers_become_numbers_too(declare: Declare) -> None:
    layers = {"1": {"ffn": {"kind": "swiglu"}, "attention": {"kind": "lstm"}}}
    resolved = resolved_hidden(declare(pattern=[SSM, {"ffn": {"kind": "relu", "expansion": 2.0}}], layers=layers))
    said = resolved.model_dump(mode="json")
    assert said["pattern"][0]["attention"]["step_rank"] == 1
    assert (said["pattern"][1]["ffn"]["hidden"], said["pattern"][1]["ffn"]["expansion"]) == (32, None)
    assert said["layers"]["1"]["ffn"]["hidden"] == 48
    assert said["layers"]["1"]["attention"]["hidden"] == 16
    assert Architecture.model_validate_json(json.dumps(said)) == resolved


@pytest.mark.parametrize(
    ("changes", "path", "reason"),
    [
        ({"pattern": [{}, {}, {}]}, "pattern", "3 layers does not fit into depth 2"),
        ({"layers": {"2": {}}}, "layers.2", "no layer 2; depth 2 has layers 0 to 1"),
        ({"layers": {"1-0": {}}}, "layers.1-0", "last layer of a run comes before its first"),
        ({"layers": {"first": {}}}, "layers.first", "a layer is its number"),
        ({"layers": {"0-1": SSM, "1": SSM}}, "layers.1", "attention of these layers is also given under '0-1'"),
        ({"layers": {"1": {"ffn": {"kind": "moe", "experts": 2, "top_k": 3}}}}, "layers.1.ffn.top_k", "3 is more than"),
        ({"pattern": [{}, {"attention": {"kind": "grouped", "kv_heads": 3}}]}, "pattern.1.attention.kv_heads", "3 key"),
        ({"pattern": [SSM], "position": {"kind": "rotary"}}, "position.kind", "inside attention's heads"),
    ],
)
def test_what_cannot_stand_is_refused_where_it_was_written(
    declare: Declare, changes: dict[str, Any], path: str, reason: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        declare(**changes)
    found = {".".join(map(str, error["loc"])): error["msg"] for error in refused.value.errors()}
    assert list(found) == [path]
    assert reason in found[path]


def test_rotary_positions_need_one_layer_with_heads_and_a_slot_that_no_layer_has_is_not_judged(declare: Declare) -> None:
    assert declare(pattern=[SSM, {}], position={"kind": "rotary"}).position.kind == "rotary"
    assert declare(heads=5, pattern=[SSM]).heads == 5


def study_settings(*patches: str) -> Any:
    found = defaults().over(parse_document(DIMENSIONS, file="size.yaml"))
    for patch in patches:
        found = found.over(parse_document(patch, file="study.yaml"))
    return found


def test_studies_set_patterns_as_a_whole_and_single_layers_by_dotted_path() -> None:
    pattern = "pattern: [{attention: {kind: selective_ssm}}, {}]"
    architecture, _ = study_settings(pattern, "layers.0-1.ffn: {kind: relu}", "{layers.0-1.ffn.hidden: 24}").resolve()
    assert kinds(architecture, "attention") == ["selective_ssm", "multi_head"] * 2
    assert [at_layer(architecture, layer=layer).ffn.hidden for layer in range(4)] == [24, 24, 64, 64]  # type: ignore[union-attr]
    assert study_settings(pattern, "pattern: []").resolve()[0].pattern == ()


def test_studies_take_a_layers_slot_back_with_null() -> None:
    architecture, _ = study_settings("layers: {3: {ffn: {kind: none}}}", "layers.3.ffn: null").resolve()
    assert kinds(architecture, "ffn") == ["gelu"] * 4


def test_a_mistake_inside_a_pattern_is_reported_at_its_own_line() -> None:
    text = "pattern:\n  - attention: {kind: selective_ssm}\n  - attention: {kind: grouped, kv_heads: 3}\nlayers:\n  x: {}\n"
    with pytest.raises(DeclarationError) as refused:
        study_settings(text.replace("layers:\n  x: {}\n", "")).resolve()
    assert [(found.line, found.path) for found in refused.value.problems] == [(3, "pattern.1.attention.kv_heads")]
    with pytest.raises(DeclarationError) as refused:
        study_settings(text).resolve()
    assert [(found.line, found.path) for found in refused.value.problems] == [(5, "layers.x")]
    with pytest.raises(DeclarationError) as refused:
        study_settings("pattern:\n  - {}\n  - attention: {kind: lstmm}\n").resolve()
    (problem,) = refused.value.problems
    assert problem.line == 3
    assert "did you mean 'lstm'" in problem.message
