"""Every dense feed-forward kind against its formula, written here a second time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn

from knockout.declare.architecture import Architecture
from knockout.declare.parts import DenseKind
from knockout.model.feed_forward import build_feed_forward

Declare = Callable[..., Architecture]


def gelu(x: Tensor) -> Tensor:
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def relu(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, 0.0)


# From the papers that the kinds name: up is x W_up + b, gate is x W_gate + b.
UNGATED: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": gelu,
    "gelu_tanh": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "relu": relu,
    "squared_relu": lambda x: relu(x) * relu(x),
    "linear": lambda x: x,
}
GATED: dict[str, Callable[[Tensor], Tensor]] = {
    "swiglu": lambda x: x / (1 + torch.exp(-x)),
    "geglu": gelu,
}


def filled(part: Any) -> Any:
    generator = torch.Generator().manual_seed(41)
    for parameter in part.parameters():
        nn.init.normal_(parameter, generator=generator)
    return part.double()


def linear(x: Tensor, part: Any) -> Tensor:
    return x @ part.weight.T + part.bias


@pytest.mark.parametrize("kind", get_args(DenseKind))
def test_each_dense_kind_is_its_formula(declare: Declare, kind: str) -> None:
    ffn = filled(build_feed_forward(declare(ffn={"kind": kind, "hidden": 24})))
    x_BTD = torch.randn(2, 5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(42))
    if kind in GATED:
        hidden_BTF = GATED[kind](linear(x_BTD, ffn.gate)) * linear(x_BTD, ffn.up)
    else:
        hidden_BTF = UNGATED[kind](linear(x_BTD, ffn.up))
    assert torch.allclose(ffn(x_BTD), linear(hidden_BTF, ffn.down), atol=1e-11)


@pytest.mark.parametrize("kind", get_args(DenseKind))
def test_only_gated_kinds_have_a_third_map(declare: Declare, kind: str) -> None:
    ffn = build_feed_forward(declare(ffn={"kind": kind, "hidden": 24}))
    assert ffn is not None
    maps = {name.split(".")[0] for name, _ in ffn.named_parameters()}
    assert maps == ({"gate", "up", "down"} if kind in GATED else {"up", "down"})


@pytest.mark.parametrize("kind", get_args(DenseKind))
def test_a_part_acts_on_every_position_alone(declare: Declare, kind: str) -> None:
    ffn = filled(build_feed_forward(declare(ffn={"kind": kind})))
    x_BTD = torch.randn(2, 5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(43))
    alone_BTD = torch.stack([ffn(x_BTD[:, i : i + 1]) for i in range(5)], dim=1).squeeze(2)
    assert torch.allclose(ffn(x_BTD), alone_BTD, atol=1e-12)
