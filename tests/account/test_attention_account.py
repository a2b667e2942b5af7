"""The attention slot's closed forms against built networks, torch's counter, and published numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from knockout.account import count
from knockout.declare.architecture import Architecture
from knockout.model import build
from knockout.model.documents import Documents

CONTEXT = 12


def small(**changes: Any) -> Architecture:
    dimensions = {"width": 16, "depth": 2, "heads": 4, "context": CONTEXT, "vocabulary": 11}
    return Architecture.model_validate({**dimensions, **changes})


SCORES = {"scale": st.sampled_from(["inverse_sqrt", "none", 0.3]), "computation": st.sampled_from(["fused", "explicit"])}
IN_HEADS = {**SCORES, "qk_norm": st.sampled_from(["none", "rms", "layer"])}
KV_HEADS = st.sampled_from([1, 2, 4])
WIDTHS = {name: st.integers(1, 9) for name in ("kv_rank", "nope_width", "value_width")}
ATTENTIONS = st.one_of(
    st.fixed_dictionaries({"kind": st.just("multi_head"), "causal": st.booleans(), **IN_HEADS}),
    st.fixed_dictionaries({"kind": st.just("single_head"), "causal": st.booleans(), **IN_HEADS}),
    st.fixed_dictionaries({"kind": st.just("grouped"), "kv_heads": KV_HEADS, "causal": st.booleans(), **IN_HEADS}),
    st.fixed_dictionaries({"kind": st.just("shared_qkv"), "causal": st.booleans(), **IN_HEADS}),
    # Where a window divides the context, or reaches halfway over it, no block is padded.
    st.fixed_dictionaries(
        {
            "kind": st.just("window"),
            "window": st.sampled_from([2, 3, 4, 6, 7, 12, 20]),
            "kv_heads": st.none() | KV_HEADS,
            **IN_HEADS,
        }
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just("latent"),
            "q_rank": st.none() | st.integers(1, 9),
            "rope_width": st.sampled_from([2, 4]),
            "causal": st.booleans(),
            **WIDTHS,
            **SCORES,
        }
    ),
    st.fixed_dictionaries({"kind": st.just("linear"), "causal": st.booleans()}),
)


@st.composite
def architectures(draw: st.DrawFn) -> Architecture:
    attention = draw(ATTENTIONS)
    positions = ["learned", "none", "rotary"] + (["alibi"] if attention["kind"] != "linear" else [])
    even = attention["kind"] == "latent" or attention["kind"] == "single_head"
    return small(
        attention=attention,
        position={"kind": draw(st.sampled_from(positions))},
        width=draw(st.sampled_from([8, 16, 40] if even else [8, 16])),
        bias=draw(st.booleans()),
    )


@settings(max_examples=80, deadline=None, derandomize=True)
@given(architectures())
def test_parameters_and_flops_equal_those_of_the_built_network(architecture: Architecture) -> None:
    network = build(architecture, seed=0, device="meta")
    counter = FlopCounterMode(display=False)
    with counter:
        network(torch.zeros(5, CONTEXT, dtype=torch.int64, device="meta"))
    account = count(architecture)
    held = sum(parameter.numel() for name, parameter in network.named_parameters() if ".attention." in name)
    assert account.parameters.attention == held
    assert account.flops_per_token.forward * 5 * CONTEXT == counter.get_total_flops()


@settings(max_examples=100, deadline=None, derandomize=True)
@given(architectures(), st.sampled_from([1, 5, 12, 50]), st.sampled_from([torch.bfloat16, torch.float32, torch.float64]))
def test_cache_bytes_equal_those_of_the_built_cache(architecture: Architecture, context: int, dtype: torch.dtype) -> None:
    if not architecture.causal:
        return
    cache = build(architecture, seed=0, device="meta", dtype=dtype).new_cache(3, capacity=context)
    assert count(architecture, context=context, batch=3, cache_bytes=dtype.itemsize).kv_cache.bytes == cache.num_bytes


@pytest.mark.parametrize("context", [64, 128, 640])
def test_linear_attention_in_chunks_counts_as_torch_counts(context: int) -> None:
    architecture = small(attention={"kind": "linear"}, position={"kind": "none"})
    counter = FlopCounterMode(display=False)
    with counter:
        build(architecture, seed=0, device="meta")(torch.zeros(1, context, dtype=torch.int64, device="meta"))
    assert counter.get_total_flops() == count(architecture, context=context).flops_per_token.forward * context


@pytest.mark.parametrize("position", ["rotary", "alibi"])
@pytest.mark.parametrize("kind", ["multi_head", "grouped", "shared_qkv", "window", "linear", "retention"])
def test_documents_that_are_read_each_by_itself_take_the_same_products(kind: str, position: str) -> None:
    if kind in ("linear", "retention") and position == "alibi":
        return
    sized = {"grouped": {"kv_heads": 2}, "window": {"window": 4}}.get(kind, {})
    architecture = small(context=64, attention={"kind": kind, **sized}, position={"kind": position})
    place_BT = torch.zeros(5, 64, dtype=torch.int64, device="meta")
    counter = FlopCounterMode(display=False)
    with counter:
        build(architecture, seed=0, device="meta")(place_BT, documents=Documents(place_BT, place_BT))
    assert counter.get_total_flops() == count(architecture).flops_per_token.forward * 5 * 64


def test_a_windows_and_a_states_flops_a_token_stop_growing_with_the_context() -> None:
    for attention in ({"kind": "window", "window": 4}, {"kind": "linear"}):
        architecture = small(attention=attention, position={"kind": "none"})
        near, far = (count(architecture, context=context).flops_per_token.forward for context in (128, 100_000))
        assert near == far


def test_a_windows_and_a_states_cache_stop_growing_with_the_context() -> None:
    def sizes(attention: dict[str, Any]) -> list[int]:
        architecture = small(attention=attention, position={"kind": "none"})
        return [count(architecture, context=context).kv_cache.bytes for context in (100, 100_000)]

    assert sizes({"kind": "window", "window": 4}) == [2 * 2 * 16 * 4 * 2] * 2
    assert sizes({"kind": "linear"}) == [2 * (16 * 4 + 16) * 4] * 2  # two sums a head, in float32
    assert sizes({"kind": "multi_head"}) == [2 * 2 * 16 * 2 * 100, 2 * 2 * 16 * 2 * 100_000]
    assert sizes({"kind": "shared_qkv"}) == [2 * 16 * 2 * 100, 2 * 16 * 2 * 100_000]


DEEPSEEK_V3 = {"kind": "latent", "q_rank": 1536, "kv_rank": 512, "nope_width": 128, "rope_width": 64, "value_width": 128}


def test_deepseek_v3s_attention_counts_as_its_published_shapes() -> None:
    """config.json of deepseek-ai/DeepSeek-V3: width 7168, 128 heads, 61 layers; bf16 cache of 70.272 kB a token."""
    architecture = small(width=7168, heads=128, depth=61, attention=DEEPSEEK_V3, position={"kind": "rotary"}, bias=False)
    account = count(architecture)
    query = 7168 * 1536 + 1536 + 1536 * 128 * 192
    keys_and_values = 7168 * 576 + 512 + 512 * 128 * 256
    assert account.parameters.attention == 61 * (query + keys_and_values + 128 * 128 * 7168)
    assert account.kv_cache.bytes_per_token == 61 * 576 * 2 == 70_272


def test_latent_attention_keeps_an_order_of_magnitude_less_than_full_attention_of_its_heads() -> None:
    shape: dict[str, Any] = {"width": 7168, "heads": 128, "depth": 61, "bias": False}
    latent = count(small(**shape, attention=DEEPSEEK_V3)).kv_cache.bytes_per_token
    full = count(small(**shape, attention={"kind": "multi_head"})).kv_cache.bytes_per_token
    assert full / latent > 20


def test_key_value_heads_divide_the_cache() -> None:
    sizes = [count(small(attention={"kind": "grouped", "kv_heads": heads})).kv_cache.bytes_per_token for heads in (4, 2, 1)]
    assert sizes == [2 * 2 * 16 * 2, 2 * 2 * 8 * 2, 2 * 2 * 4 * 2]
