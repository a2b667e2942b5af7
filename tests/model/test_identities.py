"""Who can see the future."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from knockout.declare.architecture import Architecture
from knockout.model.identities import future_leak, shrink

Declare = Callable[..., Architecture]
UNMASKED = [
    {"kind": "multi_head", "causal": False},
    {"kind": "single_head", "causal": False},
    {"kind": "grouped", "kv_heads": 2, "causal": False},
]


def test_no_causal_kind_sees_a_later_token(each_causal_kind: Architecture) -> None:
    assert future_leak(each_causal_kind, seed=0) < 1e-12


def test_only_an_encoder_is_not_causal_unless_it_is_told(each_kind: Architecture) -> None:
    assert each_kind.causal == (each_kind.skeleton.kind != "encoder")


@pytest.mark.parametrize("attention", UNMASKED, ids=lambda attention: attention["kind"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": {"kind": "none"}, "residual": {"kind": "none"}},
        {"norm": {"kind": "rms", "placement": "post"}},
    ],
    ids=["default", "bare", "post"],
)
def test_without_the_mask_later_tokens_show(declare: Declare, attention: dict, changes: dict[str, Any]) -> None:
    architecture = declare(attention=attention, **changes)
    assert not architecture.causal
    assert future_leak(architecture, seed=0) > 1e-4


def test_a_leak_shows_in_the_shortest_context_and_smallest_vocabulary(declare: Declare) -> None:
    unmasked = declare(attention=UNMASKED[0], context=1, vocabulary=1)
    assert future_leak(unmasked, seed=0) > 1e-4


def test_a_network_without_blocks_sees_nothing(declare: Declare) -> None:
    assert future_leak(declare(depth=0, attention=UNMASKED[0]), seed=0) == 0.0


def test_the_copy_is_small_and_has_the_same_parts(declare: Declare) -> None:
    gpt3 = declare(width=12288, depth=96, heads=96, context=2048, vocabulary=50257, position={"kind": "rotary"})
    small = shrink(gpt3)
    assert (small.depth, small.context, small.heads) == (4, 32, 96)
    assert small.width <= 2 * 96
    assert (small.position, small.attention, small.norm) == (gpt3.position, gpt3.attention, gpt3.norm)
