"""A network that remembers says what one says that reads everything anew; and what it remembers is as large as counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from knockout.account import count
from knockout.declare.architecture import Architecture
from knockout.model import Network, build
from knockout.model.cache import WindowCache

Declare = Callable[..., Architecture]
SPLITS = [[12], [1] * 12, [5, 1, 1, 5], [7, 5], [3, 3, 3, 3]]
LATENT = {"kind": "latent", "kv_rank": 6, "nope_width": 3, "rope_width": 4, "value_width": 5}
MORE: list[dict[str, Any]] = [
    {"attention": {"kind": "grouped", "kv_heads": 1}, "position": {"kind": "rotary"}},
    {"attention": {"kind": "grouped", "kv_heads": 2, "computation": "explicit"}, "position": {"kind": "alibi"}},
    {"attention": {"kind": "multi_head", "qk_norm": "rms"}, "position": {"kind": "rotary"}},
    {"attention": {"kind": "shared_qkv", "qk_norm": "layer"}, "position": {"kind": "rotary"}},
    {"attention": LATENT, "position": {"kind": "rotary"}, "bias": False},
    {"attention": {**LATENT, "q_rank": 5, "computation": "explicit"}, "position": {"kind": "alibi"}},
    {"attention": {"kind": "window", "window": 3, "kv_heads": 2}, "position": {"kind": "alibi"}},
    {"attention": {"kind": "window", "window": 5}, "position": {"kind": "rotary"}},
    {"attention": {"kind": "linear"}, "position": {"kind": "rotary"}},
    {"pattern": [{"attention": {"kind": "window", "window": 3}}, {"attention": {"kind": "none"}}]},
]


def some_tokens(architecture: Architecture, *, length: int) -> Tensor:
    return torch.randint(architecture.vocabulary, (2, length), generator=torch.Generator().manual_seed(5))


@torch.no_grad()
def read_in_chunks(network: Network, tokens_BT: Tensor, *, split: list[int]) -> Tensor:
    cache = network.new_cache(len(tokens_BT), capacity=tokens_BT.shape[1])
    parts = [network(chunk_BT, cache=cache).logits_BTV for chunk_BT in tokens_BT.split(split, dim=1)]
    assert cache.length == tokens_BT.shape[1]
    return torch.cat(parts, dim=1)


def largest_difference(architecture: Architecture, *, split: list[int]) -> float:
    network = build(architecture, seed=0, dtype=torch.float64).eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=torch.Generator().manual_seed(6))
    tokens_BT = some_tokens(architecture, length=sum(split))
    return (read_in_chunks(network, tokens_BT, split=split) - network(tokens_BT).logits_BTV).abs().max().item()


@pytest.mark.parametrize("split", SPLITS, ids=str)
def test_every_kind_says_the_same_with_a_cache_as_without(each_causal_kind: Architecture, split: list[int]) -> None:
    assert largest_difference(each_causal_kind, split=split) < 1e-10


@pytest.mark.parametrize("split", SPLITS, ids=str)
@pytest.mark.parametrize("changes", MORE, ids=str)
def test_every_combination_says_the_same_too(declare: Declare, changes: dict[str, Any], split: list[int]) -> None:
    assert largest_difference(declare(**changes), split=split) < 1e-10


@pytest.mark.parametrize("position", ["sinusoidal", "rotary", "alibi", "none"])
@pytest.mark.parametrize("split", [[40, 1, 1], [1] * 42, [11, 31]], ids=len)
def test_sequences_longer_than_the_context_are_remembered_as_well(declare: Declare, position: str, split: list[int]) -> None:
    assert largest_difference(declare(position={"kind": position}), split=split) < 1e-10


def test_linear_attention_carries_its_state_over_many_chunks(declare: Declare) -> None:
    linear = declare(attention={"kind": "linear"}, position={"kind": "rotary"})
    assert largest_difference(linear, split=[100, 1, 70, 1, 1]) < 1e-10


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("context", [1, 12, 30])
def test_a_cache_takes_the_bytes_that_are_counted(each_causal_kind: Architecture, dtype: torch.dtype, context: int) -> None:
    cache = build(each_causal_kind, seed=0, dtype=dtype).new_cache(3, capacity=context)
    counted = count(each_causal_kind, context=context, batch=3, cache_bytes=dtype.itemsize).kv_cache
    assert cache.num_bytes == counted.bytes


@pytest.mark.parametrize("changes", MORE, ids=str)
def test_combinations_take_the_bytes_that_are_counted(declare: Declare, changes: dict[str, Any]) -> None:
    cache = build(declare(**changes), seed=0).new_cache(2, capacity=12)
    assert cache.num_bytes == count(declare(**changes), batch=2, cache_bytes=4).kv_cache.bytes


def test_a_window_keeps_only_its_own_tokens(declare: Declare) -> None:
    network = build(declare(attention={"kind": "window", "window": 3}, position={"kind": "rotary"}), seed=0)
    cache = network.new_cache(1, capacity=1000)
    layer = cache.layers[0]
    assert isinstance(layer, WindowCache)
    assert [tuple(tensor.shape) for tensor in layer.tensors] == [(1, 4, 3, 4)] * 2
    before = cache.num_bytes
    network(some_tokens(network.architecture, length=12)[:1], cache=cache)
    assert (cache.num_bytes, layer.length) == (before, 12)


def test_a_full_cache_takes_no_more_tokens(declare: Declare) -> None:
    network = build(declare(), seed=0)
    cache = network.new_cache(2, capacity=5)
    network(some_tokens(declare(), length=4), cache=cache)
    with pytest.raises(ValueError, match="a cache for 5 tokens has no room for 6"):
        network(some_tokens(declare(), length=2), cache=cache)


def test_learned_positions_end_with_a_cache_too(declare: Declare) -> None:
    network = build(declare(), seed=0)
    cache = network.new_cache(2, capacity=20)
    network(some_tokens(declare(), length=12), cache=cache)
    with pytest.raises(ValueError, match="13 tokens is longer than the 12 learned positions"):
        network(some_tokens(declare(), length=1), cache=cache)


def test_a_network_that_sees_later_tokens_can_remember_nothing(declare: Declare) -> None:
    with pytest.raises(ValueError, match="only a causal network"):
        build(declare(attention={"kind": "multi_head", "causal": False}), seed=0).new_cache(1, capacity=4)


def test_a_cache_holds_no_gradient(each_causal_kind: Architecture) -> None:
    network = build(each_causal_kind, seed=0)
    cache = network.new_cache(2, capacity=12)
    network(some_tokens(each_causal_kind, length=6), cache=cache)
    assert not any(tensor.requires_grad for layer in cache.layers if layer is not None for tensor in layer.tensors)


def test_a_cache_lies_where_the_weights_do(each_causal_kind: Architecture) -> None:
    network = build(each_causal_kind, seed=0, device="meta", dtype=torch.bfloat16)
    cache = network.new_cache(2, capacity=12)
    network(some_tokens(each_causal_kind, length=6).to("meta"), cache=cache)
    assert network(some_tokens(each_causal_kind, length=1).to("meta"), cache=cache).logits_BTV.shape == (2, 1, 11)
    assert all(tensor.is_meta for layer in cache.layers if layer is not None for tensor in layer.tensors)


def test_a_bf16_network_decodes_nearly_as_it_reads(each_causal_kind: Architecture) -> None:
    network = build(each_causal_kind, seed=0, dtype=torch.bfloat16).eval()
    tokens_BT = some_tokens(each_causal_kind, length=12)
    whole_BTV = network(tokens_BT).logits_BTV.float()
    chunks_BTV = read_in_chunks(network, tokens_BT, split=[6, 1, 1, 4]).float()
    assert (chunks_BTV - whole_BTV).abs().max() < 0.1 * whole_BTV.abs().max() + 1e-2


def test_autocast_reads_with_a_cache(each_causal_kind: Architecture) -> None:
    network = build(each_causal_kind, seed=0).eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits_BTV = read_in_chunks(network, some_tokens(each_causal_kind, length=12), split=[6, 1, 1, 4])
    assert logits_BTV.isfinite().all()
