"""Two stacks: closed forms against the built network and torch's counter, and by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from knockout.account import count
from knockout.declare.architecture import Architecture
from knockout.model import build
from knockout.model.objective import ask_exam

BATCH, CONTEXT = 5, 12
KINDS: dict[str, dict[str, Any]] = {
    "default": {},
    "no-bias": {"bias": False},
    "grouped": {"attention": {"kind": "grouped", "kv_heads": 2}},
    "moe": {"ffn": {"kind": "moe", "experts": 5, "top_k": 2, "shared": 1, "first_dense": 1}},
    "gated": {"ffn": {"kind": "geglu"}},
    "sandwich": {"norm": {"kind": "rms", "placement": "sandwich"}},
    "post": {"norm": {"kind": "layer", "placement": "post"}},
    "rezero": {"residual": {"kind": "rezero"}},
    "quarter": {"objective": {"kind": "prefix", "share": 0.25}},
    "drawn": {"objective": {"kind": "prefix"}},
}


def two_stacks(**changes: Any) -> Architecture:
    dimensions = {"width": 16, "depth": 2, "heads": 4, "context": CONTEXT, "vocabulary": 11}
    skeleton = {"kind": "encoder_decoder", "encoder_depth": 3}
    objective = {"kind": "prefix", "share": 0.5}
    return Architecture.model_validate({**dimensions, "skeleton": skeleton, "objective": objective, **changes})


def part_of(name: str) -> str:
    """The part in whose name a parameter is counted."""
    for marks, part in (
        (("norm", "residual"), "norm"),
        (("embedding.",), "embedding"),
        (("position.",), "position"),
        ((".attention.", ".cross."), "attention"),
        ((".ffn.",), "feed_forward"),
    ):
        if any(mark in name for mark in marks):
            return part
    raise AssertionError(name)


@pytest.mark.parametrize("changes", KINDS.values(), ids=list(KINDS))
def test_parameters_equal_those_of_the_built_stacks_part_by_part(changes: dict[str, Any]) -> None:
    architecture = two_stacks(**changes)
    parameters = count(architecture).to_dict()["parameters"]
    built = dict.fromkeys(("embedding", "position", "attention", "feed_forward", "norm"), 0)
    for name, parameter in build(architecture, seed=0, device="meta").named_parameters():
        built[part_of(name)] += parameter.numel()
    assert {part: parameters[part] for part in built} == built
    assert parameters["total"] == sum(built.values())


@pytest.mark.parametrize("changes", KINDS.values(), ids=list(KINDS))
def test_flops_of_a_window_equal_torchs_counter_up_to_rounding(changes: dict[str, Any]) -> None:
    architecture = two_stacks(**changes)
    windows_BW = torch.zeros(BATCH, CONTEXT + 1, dtype=torch.int64, device="meta")
    counter = FlopCounterMode(display=False)
    with counter:
        ask_exam(windows_BW, architecture=architecture, seed=0).put_to(build(architecture, seed=0, device="meta"))
    counted = count(architecture).flops_per_token.forward
    exact = counter.get_total_flops() / (BATCH * CONTEXT)
    # Rounded once a part and layer; 5 experts share the 60 or 70 assignments of a stack evenly, as the count assumes.
    assert counted == pytest.approx(exact, abs=12)


def test_a_block_of_the_second_stack_has_four_maps_and_a_norm_more() -> None:
    first, *_, last = count(two_stacks()).per_layer
    assert len(count(two_stacks()).per_layer) == 3 + 2
    assert last.attention - first.attention == 4 * (16 * 16 + 16)
    assert last.norm - first.norm == 2 * 16
    assert last.feed_forward == first.feed_forward
