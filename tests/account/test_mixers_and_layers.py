"""Counts of recurrent mixers, norms and blocks by hand, and against built networks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from knockout.account import count
from knockout.declare.architecture import Architecture
from knockout.model import build


def small(**changes: Any) -> Architecture:
    dimensions = {"width": 16, "depth": 1, "heads": 4, "context": 12, "vocabulary": 11}
    return Architecture.model_validate({**dimensions, **changes})


def attention_parameters(**attention: Any) -> int:
    return count(small(attention=attention, bias=attention.pop("bias", True))).parameters.attention


def test_cells_count_as_by_hand() -> None:
    width, hidden = 16, 10
    for kind, gates in (("rnn", 1), ("gru", 3), ("lstm", 4)):
        maps = gates * hidden * (width + hidden) + hidden * width
        assert attention_parameters(kind=kind, hidden=hidden, bias=False) == maps
        assert attention_parameters(kind=kind, hidden=hidden) == maps + 2 * gates * hidden + width


def test_a_state_space_counts_as_by_hand() -> None:
    """Gu & Dao 2023, section 3.4: 3 E D^2 for the maps, and what the smaller parts add."""
    width, inner, states, kernel, rank = 16, 32, 16, 4, 1
    maps = 2 * width * inner + inner * width
    assert maps == 3 * 2 * width**2
    selection, step = inner * (rank + 2 * states), rank * inner + inner
    rest = inner * kernel + inner * states + inner
    assert attention_parameters(kind="selective_ssm", bias=False) == maps + selection + step + rest
    biases = 2 * inner + inner + width
    assert attention_parameters(kind="selective_ssm") == maps + selection + step + rest + biases


def test_retention_counts_as_by_hand() -> None:
    """Sun et al. 2023, section 3.1: queries, keys, gate, values, output; 8 d^2 with values of twice the width."""
    assert attention_parameters(kind="retention", bias=False) == 5 * 16**2
    assert attention_parameters(kind="retention", bias=False, value_expansion=2) == 8 * 16**2


@pytest.mark.parametrize("context", [12, 64, 128])
@pytest.mark.parametrize(
    "attention",
    [
        {"kind": "rnn"},
        {"kind": "lstm", "hidden": 7},
        {"kind": "gru"},
        {"kind": "selective_ssm", "expansion": 3, "state": 5, "convolution": 2, "step_rank": 3},
        {"kind": "retention", "value_expansion": 3},
    ],
    ids=lambda attention: attention["kind"],
)
def test_flops_equal_torchs_counter_at_any_number_of_chunks(attention: dict[str, Any], context: int) -> None:
    architecture = small(attention=attention, context=context)
    network = build(architecture, seed=0, device="meta")
    counter = FlopCounterMode(display=False)
    with counter:
        network(torch.zeros(2, context, dtype=torch.int64, device="meta"))
    assert counter.get_total_flops() == count(architecture).flops_per_token.forward * 2 * context


def test_only_retention_costs_more_in_a_longer_context_and_only_up_to_its_chunk() -> None:
    for kind in ("rnn", "lstm", "gru", "selective_ssm"):
        one, other = (count(small(attention={"kind": kind}), context=context).flops_per_token for context in (8, 4096))
        assert one == other
    short, chunk, long = (count(small(attention={"kind": "retention"}), context=c).flops_per_token for c in (8, 64, 4096))
    assert short.forward < chunk.forward == long.forward


@pytest.mark.parametrize("cache_bytes", [2, 4, 8])
@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru", "selective_ssm", "retention"])
def test_a_states_bytes_equal_those_of_the_built_cache_at_any_context(kind: str, cache_bytes: int) -> None:
    dtype = {2: torch.bfloat16, 4: torch.float32, 8: torch.float64}[cache_bytes]
    architecture = small(attention={"kind": kind}, depth=3)
    built = build(architecture, seed=0, dtype=dtype).new_cache(5, capacity=99).num_bytes
    for context in (1, 12, 10**6):
        cache = count(architecture, context=context, batch=5, cache_bytes=cache_bytes).kv_cache
        assert cache.bytes == built
        assert cache.bytes_per_token == 0


@pytest.mark.parametrize(
    ("changes", "norms"),
    [
        ({}, 3 * 32),
        ({"bias": False}, 3 * 16),
        ({"norm": {"kind": "rms", "placement": "post"}}, 2 * 16),
        ({"norm": {"kind": "rms", "placement": "sandwich"}}, 5 * 16),
        ({"norm": {"kind": "dynamic_tanh"}}, 3 * (2 * 16 + 1)),
        ({"norm": {"kind": "dynamic_tanh"}, "bias": False}, 3 * (16 + 1)),
        ({"block": {"kind": "parallel"}}, 2 * 32),
        ({"block": {"kind": "parallel"}, "norm": {"kind": "layer", "placement": "sandwich"}}, 3 * 32),
        ({"block": {"kind": "parallel"}, "attention": {"kind": "none"}}, 2 * 32),
        ({"block": {"kind": "parallel"}, "attention": {"kind": "none"}, "ffn": {"kind": "none"}}, 32),
        ({"residual": {"kind": "rezero"}, "norm": {"kind": "none"}}, 2),
        ({"residual": {"kind": "rezero"}, "norm": {"kind": "none"}, "block": {"kind": "parallel"}}, 1),
        ({"residual": {"kind": "scaled", "alpha": 0.5}}, 3 * 32),
        ({"residual": {"kind": "deepnorm"}, "norm": {"kind": "layer", "placement": "post"}}, 2 * 32),
    ],
)
def test_norms_and_gates_count_as_by_hand(changes: dict[str, Any], norms: int) -> None:
    architecture = small(**changes)
    assert count(architecture).parameters.norm == norms
    built = sum(parameter.numel() for parameter in build(architecture, seed=0, device="meta").parameters())
    assert count(architecture).parameters.total == built
