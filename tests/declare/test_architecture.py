"""What an architecture may say, what its defaults are, and what is refused."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from pydantic import ValidationError

from knockout.declare.architecture import Architecture, HeadLayout, at_layer, head_layout, hidden_width, resolved_hidden

DIMENSIONS: dict[str, Any] = {"width": 64, "depth": 2, "heads": 4, "context": 32, "vocabulary": 100}
MOE: dict[str, Any] = {"kind": "moe", "experts": 2, "top_k": 1}
NONE, MUP, DEEPNORM = {"kind": "none"}, {"kind": "mup", "base_width": 32}, {"kind": "deepnorm"}
GROUPED_3 = {"kind": "grouped", "kv_heads": 3}
LATENT = {"kind": "latent", "kv_rank": 8, "nope_width": 4, "rope_width": 2, "value_width": 4}
UNTRAINED = {"embedding": {"kind": "frozen"}, "norm": NONE, "position": NONE}
SLOTS = ("embedding", "position", "attention", "ffn", "residual", "norm", "head", "init", "block", "objective", "skeleton")
KINDS = {
    "embedding": {"learned", "frozen"},
    "position": {"learned", "sinusoidal", "rotary", "none"},
    "attention": {"multi_head", "single_head", "grouped", "none", "rnn", "lstm", "gru", "selective_ssm", "retention"},
    "ffn": {"gelu", "gelu_tanh", "relu", "squared_relu", "swiglu", "geglu", "linear", "moe", "none"},
    "residual": {"plain", "none", "scaled", "deepnorm", "rezero"},
    "norm": {"layer", "rms", "dynamic_tanh", "none"},
    "head": {"tied", "untied"},
    "init": {"gpt2", "small", "depth_scaled", "mup"},
    "block": {"serial", "parallel"},
    "objective": {"next_token", "masked", "prefix"},
    "skeleton": {"decoder", "encoder", "encoder_decoder"},
}


def declare(**changes: Any) -> Architecture:
    return Architecture.model_validate({**DIMENSIONS, **changes})


def members(slot: str) -> tuple[Any, ...]:
    annotation = Architecture.model_fields[slot].annotation
    return get_args(annotation) or (annotation,)


def refusals(**changes: Any) -> dict[str, str]:
    with pytest.raises(ValidationError) as refused:
        declare(**changes)
    return {".".join(map(str, error["loc"])): error["msg"] for error in refused.value.errors()}


def test_dimensions_alone_declare_a_small_gpt2() -> None:
    slots = declare().model_dump()
    assert {slot: slots[slot]["kind"] for slot in SLOTS} == {
        "embedding": "learned",
        "position": "learned",
        "attention": "multi_head",
        "ffn": "gelu",
        "residual": "plain",
        "norm": "layer",
        "head": "tied",
        "init": "gpt2",
        "block": "serial",
        "objective": "next_token",
        "skeleton": "decoder",
    }
    assert slots["norm"]["placement"] == "pre"
    assert slots["bias"] is True
    assert slots["dropout"] == 0.0


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_no_dimension_has_a_default(dimension: str) -> None:
    with pytest.raises(ValidationError, match="Field required"):
        Architecture.model_validate({key: value for key, value in DIMENSIONS.items() if key != dimension})


@pytest.mark.parametrize("slot", SLOTS)
def test_every_promised_kind_is_a_member_of_its_slot(slot: str) -> None:
    assert {member.model_fields["kind"].default for member in members(slot)} >= KINDS[slot]


@pytest.mark.parametrize("slot", SLOTS)
def test_every_member_says_what_it_and_each_field_means(slot: str) -> None:
    for member in members(slot):
        assert member.__doc__
        fields = {name: field for name, field in member.model_fields.items() if name != "kind"}
        assert all(field.description for field in fields.values()), member


def test_a_declaration_survives_being_written_and_read() -> None:
    moe = declare(ffn={"kind": "moe", "experts": 4, "top_k": 2}, attention={"kind": "grouped", "kv_heads": 2})
    assert Architecture.model_validate(moe.model_dump(mode="json")) == moe


def test_an_architecture_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        declare().width = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("changes", "path", "reason"),
    [
        ({"heads": 5}, "heads", "5 heads do not divide width 64"),
        ({"attention": {"kind": "grouped", "kv_heads": 3}}, "attention.kv_heads", "3 key/value heads do not"),
        ({"attention": {"kind": "grouped", "kv_heads": 8}}, "attention.kv_heads", "8 key/value heads do not"),
        ({"width": 12, "position": {"kind": "rotary"}}, "position.kind", "head width 3 must be even"),
        ({"width": 63, "position": {"kind": "sinusoidal"}, "heads": 3}, "width", "63 must be even"),
        ({"position": {"kind": "rotary"}, "attention": {"kind": "none"}}, "position.kind", "is none"),
        ({"ffn": {"kind": "moe", "experts": 2, "top_k": 3}}, "ffn.top_k", "3 is more than the 2 experts"),
        ({"ffn": {**MOE, "first_dense": 3}}, "ffn.first_dense", "3 is more than the 2 layers there are"),
        ({"ffn": {**MOE, "dense_hidden": 8}}, "ffn.dense_hidden", "there are none"),
        ({"ffn": {"kind": "gelu", "hidden": 8, "expansion": 2.0}}, "ffn.hidden", "exclude each other"),
        ({"ffn": {"kind": "relu", "expansion": 0.001}}, "ffn.expansion", "leaves no hidden unit"),
        ({"ffn": {"kind": "relu", "expansion": 1e300}}, "ffn.expansion", "more than 16777216 hidden units"),
        ({"ffn": {"kind": "relu", "expansion": 1e308}}, "ffn.expansion", "more than 16777216 hidden units"),
        ({"width": 2**23}, "width", "is over 16777216 units"),
        ({"ffn": {**MOE, "experts": 1}}, "ffn.experts", "nothing to choose"),
        ({"ffn": {**MOE, "first_dense": 2}}, "ffn.first_dense", "leaves no layer of depth 2 to the mixture"),
        ({"attention": {"kind": "window", "window": 1}}, "attention.window", "needs no query and no key"),
        ({"layers": {"1": {"ffn": {**MOE, "first_dense": 1}}}}, "layers.1.ffn.first_dense", "for single layers"),
        ({"pattern": [{}, {"ffn": {**MOE, "first_dense": 1}}]}, "pattern.1.ffn.first_dense", "none of the first 1"),
        ({"pattern": [{"ffn": {"kind": "gelu"}}], "ffn": {**MOE, "top_k": 5}}, "ffn.top_k", "5 is more than the 2"),
        ({"pattern": [{"attention": NONE}], "attention": GROUPED_3}, "attention.kv_heads", "3 key/value heads do not"),
        ({"pattern": [{"residual": {"kind": "plain"}}], "residual": DEEPNORM}, "residual.kind", "must be post"),
        ({"depth": 0, **UNTRAINED}, "embedding.kind", "nothing to train"),
        ({"attention": NONE, "ffn": NONE, **UNTRAINED}, "embedding.kind", "nothing to train"),
        ({"init": MUP, "ffn": {"kind": "gelu", "hidden": 256}}, "ffn.hidden", "give expansion"),
        ({"init": MUP, "ffn": {**MOE, "first_dense": 1, "dense_hidden": 9}}, "ffn.dense_hidden", "9 units stay"),
        ({"init": MUP, "attention": {"kind": "gru", "hidden": 64}}, "attention.hidden", "64 units stay as they are"),
        ({"init": MUP, "attention": {"kind": "selective_ssm", "step_rank": 4}}, "attention.step_rank", "4 units stay"),
        ({"init": MUP, "attention": LATENT}, "attention.kv_rank", "8 units stay as they are"),
        ({"init": MUP, "pattern": [{}, {"ffn": {"kind": "relu", "hidden": 8}}]}, "pattern.1.ffn.hidden", "8 units stay"),
    ],
)
def test_what_cannot_stand_together_is_refused_with_path_and_reason(changes: dict[str, Any], path: str, reason: str) -> None:
    found = refusals(**changes)
    assert list(found) == [path]
    assert reason in found[path]


def test_all_refusals_come_at_once() -> None:
    found = refusals(
        width=63,
        position={"kind": "sinusoidal"},
        attention={"kind": "grouped", "kv_heads": 3},
        ffn={"kind": "moe", "experts": 1, "top_k": 2, "hidden": 4, "expansion": 1.0},
    )
    assert set(found) == {"heads", "attention.kv_heads", "width", "ffn.hidden", "ffn.experts", "ffn.top_k"}


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"width": 0}, "width"),
        ({"depth": -1}, "depth"),
        ({"dropout": 1.0}, "dropout"),
        ({"width": "64"}, "width"),
        ({"attention": {"kind": "none", "causal": False}}, "attention.none.causal"),
        ({"norm": {"kind": "layer", "eps": 0.0}}, "norm.layer.eps"),
        ({"ffn": {**MOE, "balance": {"kind": "loss", "weight": 0.0}}}, "ffn.moe.balance.loss.weight"),
        ({"ffn": {**MOE, "balance": {"kind": "bias", "speed": -0.1}}}, "ffn.moe.balance.bias.speed"),
        ({"ffn": {**MOE, "activation": "moe"}}, "ffn.moe.activation"),
        ({"position": {"kind": "rotary", "base": float("nan")}}, "position.rotary.base"),
    ],
)
def test_values_out_of_range_and_unknown_keys_are_refused(changes: dict[str, Any], path: str) -> None:
    assert list(refusals(**changes)) == [path]


@pytest.mark.parametrize(
    "changes",
    [
        {"head": {"kind": "untied"}},
        {"position": {"kind": "learned"}},
        {"norm": {"kind": "rms"}},
        {"depth": 1},
    ],
)
def test_a_frozen_table_may_stand_where_something_else_is_trained(changes: dict[str, Any]) -> None:
    assert declare(**{"depth": 0, **UNTRAINED, **changes}).embedding.kind == "frozen"


def test_first_dense_in_a_pattern_is_for_those_of_its_layers_that_come_first() -> None:
    hybrid = declare(depth=4, pattern=[{"ffn": {**MOE, "first_dense": 2}}, {}])
    assert [at_layer(hybrid, layer=layer).ffn.kind for layer in range(4)] == ["gelu", "gelu", "moe", "gelu"]


def test_under_mup_a_resolved_width_is_still_a_share_of_the_networks() -> None:
    said, silent = (
        resolved_hidden(declare(init=MUP, ffn=ffn)) for ffn in ({"kind": "relu", "expansion": 4.0}, {"kind": "relu"})
    )
    assert said == silent
    assert Architecture.model_validate(silent.model_dump(mode="json")) == silent
    assert hidden_width(silent) == 256
    gated = resolved_hidden(declare(init=MUP, ffn={"kind": "swiglu"}, attention={"kind": "lstm"}))
    assert Architecture.model_validate(gated.model_dump(mode="json")) == gated


def test_heads_need_not_divide_the_width_where_they_are_not_used() -> None:
    assert declare(heads=5, attention={"kind": "single_head"}).heads == 5
    assert declare(heads=5, attention={"kind": "none"}).heads == 5


@pytest.mark.parametrize(
    ("ffn", "width", "hidden"),
    [
        ({"kind": "gelu"}, 768, 3072),
        ({"kind": "gelu_tanh"}, 768, 3072),
        ({"kind": "linear"}, 64, 256),
        ({"kind": "swiglu"}, 4096, 10928),  # 8/3 * 4096 = 10922.67, up to a multiple of 8
        ({"kind": "swiglu"}, 768, 2048),
        ({"kind": "swiglu", "expansion": 3.25}, 16384, 53248),
        ({"kind": "geglu"}, 768, 2048),
        ({"kind": "squared_relu"}, 64, 256),
        ({"kind": "swiglu", "hidden": 7}, 64, 7),
        ({"kind": "relu", "expansion": 2}, 64, 128),
        ({"kind": "moe", "experts": 4, "top_k": 1}, 64, 256),
        ({"kind": "moe", "experts": 4, "top_k": 1, "activation": "swiglu"}, 768, 2048),
        ({"kind": "none"}, 64, 0),
    ],
)
def test_hidden_width_is_given_or_a_multiple_or_the_default(ffn: dict[str, Any], width: int, hidden: int) -> None:
    assert hidden_width(declare(ffn=ffn, width=width)) == hidden


def test_head_layout_says_how_the_width_is_divided() -> None:
    assert head_layout(declare()) == HeadLayout(4, 4, 16)
    assert head_layout(declare(attention={"kind": "single_head"})) == HeadLayout(1, 1, 64)
    assert head_layout(declare(attention={"kind": "grouped", "kv_heads": 2})) == HeadLayout(4, 2, 16)
    assert head_layout(declare(attention={"kind": "none"})) is None


def test_only_attention_without_a_mask_is_not_causal() -> None:
    assert declare().causal
    assert declare(attention={"kind": "none"}).causal
    assert not declare(attention={"kind": "multi_head", "causal": False}).causal
    assert not declare(attention={"kind": "grouped", "kv_heads": 1, "causal": False}).causal
