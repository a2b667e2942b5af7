"""A mixture of experts against a slow reference that sends every token through its experts one by one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from knockout.declare.architecture import Architecture
from knockout.model import build
from knockout.model.balance import balance_loss
from knockout.model.feed_forward import build_feed_forward
from knockout.model.mixture import MixtureOfExperts

Declare = Callable[..., Architecture]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": nn.GELU(), "relu": nn.ReLU()}


def mixture(declare: Declare, **settings: Any) -> MixtureOfExperts:
    ffn = {"kind": "moe", "experts": 5, "top_k": 2, "hidden": 12, **settings}
    part = build_feed_forward(declare(ffn=ffn))
    assert isinstance(part, MixtureOfExperts)
    generator = torch.Generator().manual_seed(21)
    for parameter in part.parameters():
        nn.init.normal_(parameter, generator=generator)
    return part.double()


def some_stream(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(22))


def one_expert(part: MixtureOfExperts, x_D: Tensor, *, expert: int, activation: str) -> Tensor:
    def apply(name: str, x: Tensor) -> Tensor:
        linear = part.experts.get_submodule(name)
        return linear.weight[expert] @ x + linear.bias[expert]  # type: ignore[index]

    if activation == "swiglu":
        gate = apply("gate", x_D)
        return apply("down", gate * torch.sigmoid(gate) * apply("up", x_D))
    return apply("down", ACTIVATIONS[activation](apply("up", x_D)))


def slow_reference(part: MixtureOfExperts, x_D: Tensor, *, top_k: int, activation: str) -> Tensor:
    probabilities = torch.softmax(part.router.weight @ x_D, 0)
    chosen = sorted(range(len(probabilities)), key=lambda e: -probabilities[e].item())[:top_k]
    total = sum(probabilities[e] for e in chosen) if top_k > 1 else 1.0
    outputs = (one_expert(part, x_D, expert=e, activation=activation) * probabilities[e] / total for e in chosen)
    return torch.stack(list(outputs)).sum(0)


@pytest.mark.parametrize("activation", ["gelu", "relu", "swiglu"])
@pytest.mark.parametrize("top_k", [1, 2, 5])
def test_dispatch_equals_sending_each_token_through_its_experts(declare: Declare, top_k: int, activation: str) -> None:
    part, x_BTD = mixture(declare, top_k=top_k, activation=activation), some_stream(3, 7, 16)
    expected = [slow_reference(part, x_D, top_k=top_k, activation=activation) for x_D in x_BTD.flatten(0, 1)]
    assert torch.allclose(part(x_BTD).flatten(0, 1), torch.stack(expected), atol=1e-12)


def test_gradients_equal_those_of_the_slow_reference(declare: Declare) -> None:
    part, x_BTD = mixture(declare), some_stream(2, 4, 16)
    weights = list(part.parameters())
    fast = torch.autograd.grad(part(x_BTD).square().sum(), weights)
    slow_ND = torch.stack([slow_reference(part, x_D, top_k=2, activation="gelu") for x_D in x_BTD.flatten(0, 1)])
    slow = torch.autograd.grad(slow_ND.square().sum(), weights)
    for one, other in zip(fast, slow, strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-9)


def test_no_token_is_dropped_when_all_choose_the_same_expert(declare: Declare) -> None:
    part, x_BTD = mixture(declare, top_k=1), some_stream(2, 8, 16).abs()
    with torch.no_grad():
        part.router.weight.zero_()
        part.router.weight[3] = 10.0
    expected = [slow_reference(part, x_D, top_k=1, activation="gelu") for x_D in x_BTD.flatten(0, 1)]
    assert torch.allclose(part(x_BTD).flatten(0, 1), torch.stack(expected), atol=1e-12)
    assert part.routing is not None
    assert part.routing.load_E.tolist() == [0, 0, 0, 1, 0]
    assert part.routing.entropy.item() == 0.0


def test_entropy_of_an_even_load_is_the_log_of_the_number_of_experts(declare: Declare) -> None:
    part = mixture(declare, top_k=5)
    part(some_stream(2, 8, 16))
    assert part.routing is not None
    assert part.routing.load_E.tolist() == pytest.approx([0.2] * 5)
    assert part.routing.entropy.item() == pytest.approx(math.log(5))


def test_balance_loss_is_one_when_even_and_the_number_of_experts_at_collapse() -> None:
    even_E = torch.full((4,), 0.25)
    one_E = torch.tensor([0.0, 1.0, 0.0, 0.0])
    assert balance_loss(even_E.expand(9, 4), load_E=even_E).item() == pytest.approx(1.0)
    assert balance_loss(one_E.expand(9, 4), load_E=one_E).item() == pytest.approx(4.0)


def test_auxiliary_loss_is_the_weighted_sum_over_layers_and_is_taken_once(declare: Declare) -> None:
    ffn = {"kind": "moe", "experts": 4, "top_k": 1, "balance": {"kind": "loss", "weight": 0.5}}
    network = build(declare(depth=3, ffn=ffn, init={"kind": "gpt2", "std": 1e-6}), seed=0)
    prediction = network(torch.randint(11, (4, 12), generator=torch.Generator().manual_seed(1)))
    # Routers this small give every expert the same probability, and then the loss is 1 whatever the load.
    assert prediction.auxiliary_loss.item() == pytest.approx(3 * 0.5, rel=1e-3)
    assert [block.take_auxiliary_loss() for block in network.blocks] == [None] * 3  # type: ignore[operator]


def test_networks_without_a_mixture_ask_for_nothing(declare: Declare) -> None:
    assert build(declare(), seed=0)(torch.zeros(1, 3, dtype=torch.int64)).auxiliary_loss.item() == 0.0


def test_balance_loss_evens_the_load(declare: Declare) -> None:
    network = build(
        declare(depth=1, ffn={"kind": "moe", "experts": 4, "top_k": 1, "balance": {"kind": "loss", "weight": 1.0}}), seed=0
    )
    ffn = network.blocks[0].ffn
    assert isinstance(ffn, MixtureOfExperts)
    tokens_BT = torch.randint(11, (8, 12), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        ffn.router.weight[2] += network.blocks[0].ffn_norm(network.embedding.weight).mean(0)  # type: ignore
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    entropies = []
    for _ in range(40):
        loss = network(tokens_BT).auxiliary_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert ffn.routing is not None
        entropies.append(ffn.routing.entropy.item())
    assert entropies[-1] > entropies[0]
    assert entropies[-1] > 0.9 * math.log(4)
