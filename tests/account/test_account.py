"""Closed forms against built networks, torch's own FLOP counter, and numbers worked out by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
import torch
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from ruamel.yaml import YAML
from torch.utils.flop_counter import FlopCounterMode

from knockout.account import count
from knockout.declare.architecture import Architecture
from knockout.declare.layers import LayerSlots
from knockout.model import build

PRESETS = Path(__file__).parents[2] / "ablations" / "presets"
BATCH, CONTEXT = 5, 12  # 60 tokens, which any number of experts up to 5 divides


def preset(name: str) -> Architecture:
    return Architecture.model_validate(YAML(typ="safe").load(PRESETS / f"{name}.yaml")["architecture"])


def small(**changes: Any) -> Architecture:
    dimensions = {"width": 16, "depth": 2, "heads": 4, "context": CONTEXT, "vocabulary": 11}
    return Architecture.model_validate({**dimensions, **changes})


# A number of key/value heads, experts or choices is drawn so that it fits any 4 heads.
REQUIRED = {"kv_heads": [1, 2, 4], "experts": [3, 4, 5], "top_k": [1, 2, 3]}


@st.composite
def members(draw: st.DrawFn, slot: str) -> dict[str, Any]:
    """Any member of a slot's union, its switches thrown at random."""
    annotation: Any = Architecture.model_fields[slot].annotation
    member = draw(st.sampled_from(get_args(annotation) or (annotation,)))
    values: dict[str, Any] = {"kind": member.model_fields["kind"].default}
    for name, field in member.model_fields.items():
        if field.is_required():
            values[name] = draw(st.sampled_from(REQUIRED.get(name, [2])))
        elif field.annotation is bool:
            values[name] = draw(st.booleans())
        elif name == "hidden":
            values[name] = draw(st.none() | st.integers(1, 40))
        elif name != "kind" and get_origin(field.annotation) is Literal:
            values[name] = draw(st.sampled_from(get_args(field.annotation)))
    return values


@st.composite
def layer_slots(draw: st.DrawFn) -> dict[str, Any]:
    """Some slots of a layer."""
    return {slot: draw(members(slot)) for slot in draw(st.sets(st.sampled_from(list(LayerSlots.model_fields))))}


@st.composite
def architectures(draw: st.DrawFn) -> Architecture:
    """Any architecture that can stand, layers that differ included."""
    slots = ("embedding", "position", "attention", "ffn", "residual", "norm", "block", "head")
    try:
        return small(
            width=draw(st.sampled_from([8, 16, 40])),
            depth=draw(st.integers(0, 3)),
            vocabulary=draw(st.integers(1, 50)),
            bias=draw(st.booleans()),
            pattern=draw(st.just([]) | st.lists(layer_slots(), max_size=2)),
            layers=draw(st.just({}) | st.fixed_dictionaries({"1": layer_slots()})),
            **{slot: draw(members(slot)) for slot in slots},
        )
    except ValidationError:
        reject()


PARTS = {
    "embedding": "embedding",
    "position": "position",
    "attention": "attention",
    "ffn": "feed_forward",
    "head": "head",
}


def counted(architecture: Architecture) -> dict[str, int]:
    """Parameters of the built network, by the part in whose name they stand."""
    found = dict.fromkeys([*PARTS.values(), "norm"], 0)
    for name, parameter in build(architecture, seed=0, device="meta").named_parameters():
        part = name.split(".")[2] if name.startswith("blocks.") else name.split(".")[0]
        found[PARTS.get(part, "norm")] += parameter.numel()
    return found


@settings(max_examples=100, deadline=None, derandomize=True)
@given(architectures())
def test_parameters_equal_those_of_the_built_network_part_by_part(architecture: Architecture) -> None:
    parameters = count(architecture).to_dict()["parameters"]
    built = counted(architecture)
    assert {part: parameters[part] for part in built} == built
    assert parameters["total"] == sum(built.values())


@settings(max_examples=60, deadline=None, derandomize=True)
@given(architectures())
def test_flops_equal_torchs_counter(architecture: Architecture) -> None:
    network = build(architecture, seed=0, device="meta")
    tokens_BT = torch.zeros(BATCH, CONTEXT, dtype=torch.int64, device="meta")
    counter = FlopCounterMode(display=False)
    with counter:
        network(tokens_BT)
    assert counter.get_total_flops() == count(architecture).flops_per_token.forward * BATCH * CONTEXT


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"ffn": {"kind": "moe", "experts": 4, "top_k": 2}},
        {"attention": {"kind": "grouped", "kv_heads": 2}},
    ],
    ids=["default", "moe", "grouped"],
)
def test_training_flops_equal_torchs_counter_with_the_backward_pass(changes: dict[str, Any]) -> None:
    architecture = small(**changes)
    network = build(architecture, seed=0, device="meta")
    counter = FlopCounterMode(display=False)
    with counter:
        network(torch.zeros(BATCH, CONTEXT, dtype=torch.int64, device="meta")).logits_BTV.sum().backward()
    assert counter.get_total_flops() == count(architecture).flops_per_token.training * BATCH * CONTEXT


@settings(max_examples=30, deadline=None, derandomize=True)
@given(architectures())
def test_layers_add_up_to_the_blocks(architecture: Architecture) -> None:
    account = count(architecture)
    assert len(account.per_layer) == architecture.depth
    for part in ("attention", "feed_forward"):
        assert sum(getattr(layer, part) for layer in account.per_layer) == getattr(account.parameters, part)
    for layer in account.per_layer:
        assert layer.total == layer.attention + layer.feed_forward + layer.norm


def test_gpt2_has_the_124_439_808_parameters_of_the_published_checkpoint() -> None:
    parameters = count(preset("gpt2")).parameters
    assert parameters.total == 124_439_808
    assert parameters.head == 0


def test_gpt3_counts_as_by_hand() -> None:
    width, depth, vocabulary, context = 12288, 96, 50257, 2048
    parameters = count(preset("gpt3")).parameters
    assert parameters.embedding == vocabulary * width == 617_558_016
    assert parameters.position == context * width == 25_165_824
    assert parameters.attention == depth * 4 * width**2 == depth * 603_979_776
    assert parameters.feed_forward == depth * 8 * width**2 == depth * 1_207_959_552
    assert parameters.norm == (2 * depth + 1) * width
    assert parameters.total == 617_558_016 + 25_165_824 + 96 * (603_979_776 + 1_207_959_552) + 193 * 12288
    assert parameters.total == 174_591_270_912


def test_gpt3_keeps_4_718_592_bytes_a_token() -> None:
    cache = count(preset("gpt3"), batch=3).kv_cache
    assert cache.bytes_per_token == 2 * 96 * 12288 * 2 == 4_718_592
    assert cache.bytes == 3 * 2048 * 4_718_592


def test_llama3_405b_counts_as_by_hand() -> None:
    width, hidden, depth, vocabulary, kv_width = 16384, 53248, 126, 128256, 8 * 128
    parameters = count(preset("llama3-405b")).parameters
    assert parameters.embedding == parameters.head == vocabulary * width
    assert parameters.attention == depth * (2 * width**2 + 2 * width * kv_width)
    assert parameters.feed_forward == depth * 3 * width * hidden
    assert parameters.norm == (2 * depth + 1) * width
    assert parameters.total == 405_853_388_800


def test_untying_the_head_costs_one_table_and_no_flops() -> None:
    tied, untied = count(small()), count(small(head={"kind": "untied"}))
    assert untied.parameters.total - tied.parameters.total == 11 * 16
    assert untied.flops_per_token == tied.flops_per_token


def test_a_mixture_holds_all_experts_and_computes_with_a_few() -> None:
    dense = count(small(bias=False))
    moe = count(small(bias=False, ffn={"kind": "moe", "experts": 8, "top_k": 2}))
    router, expert, depth = 16 * 8, 2 * 16 * 64, 2
    assert moe.parameters.feed_forward == depth * (router + 8 * expert)
    assert moe.parameters.active == moe.parameters.total - depth * 6 * expert
    assert moe.flops_per_token.forward - dense.flops_per_token.forward == 2 * depth * (router + expert)


def test_only_attention_grows_with_the_context() -> None:
    short, long = count(small()), count(small(), context=10 * CONTEXT)
    per_layer = 4 * 9 * CONTEXT * 16
    assert long.flops_per_token.forward - short.flops_per_token.forward == 2 * per_layer
    assert long.kv_cache.bytes == 10 * short.kv_cache.bytes
    assert long.parameters == short.parameters
    blind = small(attention={"kind": "none"})
    assert count(blind, context=999).flops_per_token == count(blind).flops_per_token
    assert count(blind).kv_cache.bytes == 0


def test_adam_keeps_two_float32_moments_for_every_weight() -> None:
    account = count(small(), weight_bytes=4)
    assert account.bytes.weights == 4 * account.parameters.total
    assert account.bytes.optimizer == 8 * account.parameters.total


def test_the_dictionary_has_exactly_the_promised_keys() -> None:
    found = {key: set(value) for key, value in count(small()).to_dict().items()}
    assert found == {
        "parameters": {
            "total",
            "active",
            "embedding",
            "position",
            "attention",
            "feed_forward",
            "norm",
            "head",
        },
        "flops_per_token": {"forward", "training"},
        "kv_cache": {"bytes_per_token", "bytes"},
        "bytes": {"weights", "optimizer"},
    }


@pytest.mark.parametrize("path", sorted(PRESETS.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_preset_says_its_name_its_source_and_every_setting(path: Path) -> None:
    content = YAML(typ="safe").load(path)
    assert content["preset"] == path.stem
    assert content["source"]
    assert set(content["architecture"]) == set(Architecture.model_fields)
    Architecture.model_validate(content["architecture"])


def test_counting_does_not_import_torch() -> None:
    script = "import sys, knockout.account; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
