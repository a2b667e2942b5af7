"""Every routing, balance and kind of expert against slow references that go token by token, and by hand."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any, get_args

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from knockout.declare.architecture import Architecture
from knockout.declare.parts import DenseKind
from knockout.model import build
from knockout.model.balance import BiasBalance, end_step
from knockout.model.feed_forward import build_feed_forward
from knockout.model.mixture import MixtureOfExperts

Declare = Callable[..., Architecture]
BALANCES: dict[str, dict[str, Any]] = {
    "loss": {"kind": "loss", "weight": 0.3},
    "bias": {"kind": "bias", "speed": 0.05},
    "none": {"kind": "none"},
}
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "squared_relu": lambda x: F.relu(x) ** 2,
    "linear": lambda x: x,
    "swiglu": F.silu,
    "geglu": F.gelu,
}


def mixture(declare: Declare, **settings: Any) -> Any:
    ffn = {"kind": "moe", "experts": 5, "top_k": 2, "hidden": 12, **settings}
    part = build_feed_forward(declare(ffn=ffn))
    assert isinstance(part, MixtureOfExperts)
    generator = torch.Generator().manual_seed(51)
    for parameter in part.parameters():
        nn.init.normal_(parameter, generator=generator)
    if isinstance(part.balance, BiasBalance):
        nn.init.normal_(part.balance.choice_bias, generator=generator)
    return part.double()


def some_stream(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(52))


def maps(part: Any, x_D: Tensor, *, activation: str, expert: int | None = None) -> Tensor:
    """One expert of a set, or a dense part, on one token."""

    def apply(name: str, x: Tensor) -> Tensor:
        linear = getattr(part, name)
        weight, bias = (linear.weight, linear.bias) if expert is None else (linear.weight[expert], linear.bias[expert])
        return weight @ x + bias

    if hasattr(part, "gate"):
        return apply("down", ACTIVATIONS[activation](apply("gate", x_D)) * apply("up", x_D))
    return apply("down", ACTIVATIONS[activation](apply("up", x_D)))


def slow_reference(part: Any, x_D: Tensor, *, routing: str, scale: float, top_k: int, activation: str) -> Tensor:
    logits = [weight_D @ x_D for weight_D in part.router.weight]
    if routing == "softmax":
        total = sum(math.exp(logit.item()) for logit in logits)
        scores = [logit.exp() / total for logit in logits]
    else:
        scores = [1 / (1 + (-logit).exp()) for logit in logits]
    bias = getattr(part.balance, "choice_bias", torch.zeros(len(scores)))
    chosen = sorted(range(len(scores)), key=lambda e: -(scores[e] + bias[e]).item())[:top_k]
    sum_of_gates = sum(scores[e] for e in chosen) if top_k > 1 else 1.0
    y_D = torch.zeros_like(x_D)
    for e in chosen:
        y_D = y_D + scale * scores[e] / sum_of_gates * maps(part.experts, x_D, activation=activation, expert=e)
    return y_D if part.shared is None else y_D + maps(part.shared, x_D, activation=activation)


@pytest.mark.parametrize("routing", ["softmax", "sigmoid"])
@pytest.mark.parametrize("balance", BALANCES)
@pytest.mark.parametrize(("top_k", "shared"), [(1, 0), (2, 1), (3, 2)])
def test_dispatch_equals_sending_each_token_through_its_experts(
    declare: Declare, routing: str, balance: str, top_k: int, shared: int
) -> None:
    settings = {"routing": {"kind": routing, "scale": 2.5}, "balance": BALANCES[balance]}
    part, x_BTD = mixture(declare, top_k=top_k, shared=shared, **settings), some_stream(3, 7, 16)
    slow = [
        slow_reference(part, x_D, routing=routing, scale=2.5, top_k=top_k, activation="gelu") for x_D in x_BTD.flatten(0, 1)
    ]
    assert torch.allclose(part(x_BTD).flatten(0, 1), torch.stack(slow), atol=1e-11)


@pytest.mark.parametrize("activation", get_args(DenseKind))
def test_an_expert_is_any_dense_kind(declare: Declare, activation: str) -> None:
    part, x_BTD = mixture(declare, activation=activation, shared=1), some_stream(2, 5, 16)
    slow = [
        slow_reference(part, x_D, routing="softmax", scale=1.0, top_k=2, activation=activation)
        for x_D in x_BTD.flatten(0, 1)
    ]
    assert torch.allclose(part(x_BTD).flatten(0, 1), torch.stack(slow), atol=1e-11)


def test_two_shared_experts_are_the_sum_of_two_parts(declare: Declare) -> None:
    part, x_D = mixture(declare, shared=2).shared, some_stream(16)
    halves = [
        part.down.weight[:, half] @ F.gelu(part.up.weight[half] @ x_D + part.up.bias[half])
        for half in (slice(0, 12), slice(12, 24))
    ]
    assert torch.allclose(part(x_D), halves[0] + halves[1] + part.down.bias, atol=1e-12)


def test_the_loss_of_sigmoid_scores_is_that_of_their_shares(declare: Declare) -> None:
    part, x_BTD = mixture(declare, routing={"kind": "sigmoid"}, balance=BALANCES["loss"]), some_stream(4, 6, 16)
    part(x_BTD)
    # DeepSeek-V3, equations 17 - 20, with its T the number of tokens, K_r = 2 and N_r = 5.
    score_NE = torch.sigmoid(x_BTD.flatten(0, 1) @ part.router.weight.T)
    chosen_NE = torch.zeros_like(score_NE).scatter(1, score_NE.topk(2).indices, 1.0)
    f_E = 5 / (2 * 24) * chosen_NE.sum(0)
    p_E = (score_NE / score_NE.sum(1, keepdim=True)).mean(0)
    assert part.take_auxiliary_loss().item() == pytest.approx(0.3 * (f_E * p_E).sum().item(), rel=1e-6)


@pytest.mark.parametrize("balance", ["bias", "none"])
def test_without_a_balance_loss_nothing_is_asked_of_the_optimiser(declare: Declare, balance: str) -> None:
    part = mixture(declare, balance=BALANCES[balance])
    part(some_stream(2, 3, 16))
    assert part.take_auxiliary_loss() is None


def test_the_bias_changes_the_choice_and_no_gate(declare: Declare) -> None:
    part, x_BTD = mixture(declare, top_k=2, balance=BALANCES["bias"]), some_stream(1, 1, 16)
    part.balance.choice_bias.copy_(torch.tensor([9.0, 0, 9, 0, 0]))
    scores = torch.softmax(part.router.weight @ x_BTD[0, 0], 0)
    outputs = [maps(part.experts, x_BTD[0, 0], activation="gelu", expert=e) for e in (0, 2)]
    expected = (scores[0] * outputs[0] + scores[2] * outputs[1]) / (scores[0] + scores[2])
    assert torch.allclose(part(x_BTD)[0, 0], expected, atol=1e-12)


def test_the_bias_moves_once_a_step_by_the_load_of_all_its_passes(declare: Declare) -> None:
    """Wang et al. 2024, algorithm 1: b_i += u * sign(mean(c) - c_i)."""
    part = mixture(declare, balance=BALANCES["bias"])
    before_E, counts = part.balance.choice_bias.clone(), torch.zeros(5)
    for batch in (some_stream(3, 7, 16), some_stream(2, 5, 16) + 1):
        part(batch)
        counts += part.routing.load_E * batch.shape[0] * batch.shape[1] * 2
    assert torch.equal(part.balance.choice_bias, before_E)
    end_step(part)
    expected_E = before_E + 0.05 * torch.sign(counts.mean() - counts)
    assert torch.allclose(part.balance.choice_bias, expected_E)
    part.eval()
    part(some_stream(3, 7, 16))
    end_step(part)
    assert torch.allclose(part.balance.choice_bias, expected_E), "an evaluation is no training"


def skewed_network(declare: Declare, **balance: Any) -> Any:
    ffn = {"kind": "moe", "experts": 4, "top_k": 1, "balance": balance}
    network: Any = build(declare(depth=1, ffn=ffn), seed=0)
    with torch.no_grad():
        network.blocks[0].ffn.router.weight[2] += network.blocks[0].ffn_norm(network.embedding.weight).mean(0)
    return network


def test_bias_based_balance_evens_the_load_without_a_gradient(declare: Declare) -> None:
    network = skewed_network(declare, kind="bias", speed=0.01)
    tokens_BT = torch.randint(11, (8, 12), generator=torch.Generator().manual_seed(1))
    entropies, loads = [], []
    for _ in range(60):
        assert network(tokens_BT).auxiliary_loss.item() == 0.0
        end_step(network)
        entropies.append(network.blocks[0].ffn.routing.entropy.item())
        loads.append(network.blocks[0].ffn.routing.load_max.item())
    assert entropies[0] < 0.9 * math.log(4) < entropies[-1]
    assert loads[0] > 2.0 > loads[-1], "in units of an even share, of four experts"


def test_the_bias_is_state_and_no_parameter(declare: Declare) -> None:
    network = skewed_network(declare, kind="bias", speed=0.5)
    name = "blocks.0.ffn.balance.choice_bias"
    assert name not in dict(network.named_parameters())
    network(torch.zeros(1, 3, dtype=torch.int64))
    end_step(network)
    saved = copy.deepcopy(network.state_dict())
    assert saved[name].abs().max() == 0.5
    restored = skewed_network(declare, kind="bias", speed=0.5)
    restored.load_state_dict(saved)
    for one in (network, restored):
        one(torch.ones(2, 5, dtype=torch.int64))
        end_step(one)
    assert torch.equal(network.state_dict()[name], restored.state_dict()[name])


def test_first_layers_are_dense_where_the_declaration_says_so(declare: Declare) -> None:
    ffn = {"kind": "moe", "experts": 4, "top_k": 2, "activation": "swiglu", "hidden": 8}
    network = build(declare(depth=3, ffn={**ffn, "first_dense": 2, "dense_hidden": 20}), seed=0)
    shapes = {name: tuple(value.shape) for name, value in network.named_parameters() if "gate.weight" in name}
    assert shapes == {
        "blocks.0.ffn.gate.weight": (20, 16),
        "blocks.1.ffn.gate.weight": (20, 16),
        "blocks.2.ffn.experts.gate.weight": (4, 8, 16),
    }
    by_default = build(declare(depth=2, ffn={**ffn, "first_dense": 1}), seed=0)
    assert tuple(by_default.get_parameter("blocks.0.ffn.gate.weight").shape) == (48, 16)


def test_a_small_deepseek_v3_layer_is_its_equations(declare: Declare) -> None:
    """DeepSeek-AI 2024, "DeepSeek-V3", equations 12 - 16, and its gates' factor of 2.5; no biases."""
    ffn = {
        "kind": "moe",
        "experts": 6,
        "top_k": 3,
        "shared": 1,
        "activation": "swiglu",
        "hidden": 10,
        "routing": {"kind": "sigmoid", "scale": 2.5},
        "balance": {"kind": "bias", "speed": 0.001},
    }
    part: Any = build_feed_forward(declare(bias=False, ffn=ffn))
    generator = torch.Generator().manual_seed(53)
    for parameter in part.parameters():
        nn.init.normal_(parameter, generator=generator)
    part.double()
    part.balance.choice_bias.copy_(torch.randn(6, generator=generator))
    u_ND = some_stream(9, 16)

    def expert(gate_FD: Tensor, up_FD: Tensor, down_DF: Tensor) -> Tensor:
        return (F.silu(u_ND @ gate_FD.T) * (u_ND @ up_FD.T)) @ down_DF.T

    s_NE = torch.sigmoid(u_ND @ part.router.weight.T)
    kth_N1 = (s_NE + part.balance.choice_bias).sort(descending=True).values[:, 2:3]
    g_NE = torch.where(s_NE + part.balance.choice_bias >= kth_N1, s_NE, 0.0)
    g_NE = 2.5 * g_NE / g_NE.sum(1, keepdim=True)
    weights = [part.experts.gate.weight, part.experts.up.weight, part.experts.down.weight]
    routed_ND = sum(g_NE[:, e : e + 1] * expert(*(weight[e] for weight in weights)) for e in range(6))
    shared_ND = expert(part.shared.gate.weight, part.shared.up.weight, part.shared.down.weight)
    assert torch.allclose(part(u_ND.unsqueeze(0))[0], routed_ND + shared_ND, atol=1e-11)


@pytest.mark.parametrize("balance", BALANCES)
@pytest.mark.parametrize("routing", ["softmax", "sigmoid"])
def test_gradient_reaches_every_parameter_and_bf16_stays_finite(declare: Declare, balance: str, routing: str) -> None:
    ffn = {"kind": "moe", "experts": 4, "top_k": 2, "shared": 1, "routing": {"kind": routing}, "balance": BALANCES[balance]}
    tokens_BT = torch.randint(11, (6, 12), generator=torch.Generator().manual_seed(1))
    for precision in (torch.float32, torch.bfloat16):
        network = build(declare(ffn=ffn), seed=0)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision is torch.bfloat16):
            prediction = network(tokens_BT[:, :-1])
            loss = F.cross_entropy(prediction.logits_BTV.float().flatten(0, 1), tokens_BT[:, 1:].flatten())
        (loss + prediction.auxiliary_loss).backward()
        grads = {name: parameter.grad for name, parameter in network.named_parameters() if not name.endswith("key.bias")}
        assert all(grad is not None and grad.isfinite().all() and grad.abs().max() > 0 for grad in grads.values())
