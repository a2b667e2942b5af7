"""What every network promises, whatever stands in its slots."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from knockout.declare.architecture import Architecture
from knockout.declare.parts import Gpt2Init
from knockout.model import Network, build
from knockout.model.objective import ask

Declare = Callable[..., Architecture]


def some_tokens(architecture: Architecture, *, batch: int = 3, length: int | None = None) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    shape = (batch, length or architecture.context)
    return torch.randint(architecture.vocabulary, shape, generator=generator)


def training_loss(network: Network, windows_BW: Tensor) -> Tensor:
    question = ask(windows_BW, architecture=network.architecture, seed=0)
    prediction = question.put_to(network)
    return F.cross_entropy(question.logits_NV(prediction).float(), question.answers_N) + prediction.auxiliary_loss


def test_a_prediction_has_a_finite_logit_for_every_token(each_kind: Architecture) -> None:
    prediction = build(each_kind, seed=0)(some_tokens(each_kind))
    assert prediction.logits_BTV.shape == (3, 12, 11)
    assert prediction.logits_BTV.isfinite().all()
    assert prediction.auxiliary_loss.shape == ()


def test_first_loss_is_that_of_a_uniform_guess(each_kind: Architecture) -> None:
    tokens_BT = some_tokens(each_kind, batch=50)
    network = build(each_kind, seed=0)
    logits_BTV = network(tokens_BT[:, :-1]).logits_BTV
    loss = F.cross_entropy(logits_BTV.flatten(0, 1), tokens_BT[:, 1:].flatten())
    # Weights are small under gpt2's scheme; others leave the logits some spread.
    spread = 0.1 if isinstance(each_kind.init, Gpt2Init) else 0.5
    assert loss.item() == pytest.approx(torch.tensor(11.0).log().item(), abs=spread)


def test_every_parameter_gets_a_gradient(each_kind: Architecture) -> None:
    network = build(each_kind, seed=0)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.01  # a gate that starts closed lets no gradient through
    training_loss(network, some_tokens(each_kind)).backward()
    without = {
        name
        for name, parameter in network.named_parameters()
        if parameter.requires_grad and (parameter.grad is None or not parameter.grad.abs().max() > 0)
    }
    # A bias of the keys adds the same to all scores of a query, and softmax does not see it.
    assert {name for name in without if not name.endswith("key.bias")} == set()


def test_twenty_steps_lower_the_loss_on_a_text_of_three_tokens_in_turn(each_kind: Architecture) -> None:
    network = build(each_kind, seed=0)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    tokens_BT = (torch.arange(13) + torch.arange(8).unsqueeze(1)) % 3
    losses = []
    for _ in range(21):
        loss = training_loss(network, tokens_BT)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.2


def test_bf16_autocast_is_finite_forwards_and_backwards(each_kind: Architecture) -> None:
    network = build(each_kind, seed=0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = training_loss(network, some_tokens(each_kind))
    loss.backward()
    assert loss.isfinite()
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name


def test_bf16_autocast_says_nearly_what_float32_says(each_kind: Architecture) -> None:
    network, tokens_BT = build(each_kind, seed=0), some_tokens(each_kind)
    exact_BTV = network(tokens_BT).logits_BTV
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough_BTV = network(tokens_BT).logits_BTV
    assert (rough_BTV.float() - exact_BTV).abs().max() < 0.05 * exact_BTV.abs().max() + 1e-3


def test_a_network_of_bf16_or_float64_runs_throughout(each_kind: Architecture) -> None:
    for dtype in (torch.bfloat16, torch.float64):
        network = build(each_kind, seed=0, dtype=dtype)
        assert network(some_tokens(each_kind)).logits_BTV.dtype == dtype


def test_a_network_runs_on_the_meta_device_and_holds_nothing(each_kind: Architecture) -> None:
    network = build(each_kind, seed=0, device="meta")
    assert all(parameter.is_meta for parameter in network.parameters())
    assert network(some_tokens(each_kind).to("meta")).logits_BTV.shape == (3, 12, 11)


def test_a_network_can_be_copied_and_restored_after_training(each_kind: Architecture) -> None:
    network, tokens_BT = build(each_kind, seed=0), some_tokens(each_kind)
    training_loss(network, tokens_BT).backward()
    restored = build(each_kind, seed=1)
    restored.load_state_dict(copy.deepcopy(network).state_dict())
    assert torch.equal(restored(tokens_BT).logits_BTV, network(tokens_BT).logits_BTV)


def test_shorter_sequences_are_read_as_the_beginning_of_longer_ones(each_causal_kind: Architecture) -> None:
    network, tokens_BT = build(each_causal_kind, seed=0, dtype=torch.float64), some_tokens(each_causal_kind)
    short_BTV, long_BTV = network(tokens_BT[:, :5]).logits_BTV, network(tokens_BT).logits_BTV
    assert torch.allclose(short_BTV, long_BTV[:, :5], atol=1e-12)


def test_a_tied_table_is_held_and_saved_once(declare: Declare) -> None:
    tied, untied = build(declare(), seed=0), build(declare(head={"kind": "untied"}), seed=0)
    assert [name for name in tied.state_dict() if "head" in name] == []
    held = sum(parameter.numel() for parameter in tied.parameters())
    assert sum(value.numel() for value in tied.state_dict().values()) == held
    assert set(untied.state_dict()) - set(tied.state_dict()) == {"head.weight"}


def test_parameter_names_say_where_they_stand(declare: Declare) -> None:
    names = set(build(declare(), seed=0).state_dict())
    assert {
        "embedding.weight",
        "position.weight",
        "blocks.1.attention.query.weight",
        "blocks.1.attention_norm.weight",
        "blocks.1.ffn.down.bias",
        "norm.weight",
    } <= names


def test_depth_zero_is_embedding_norm_and_head(declare: Declare) -> None:
    network = build(declare(depth=0), seed=0)
    assert set(network.state_dict()) == {"embedding.weight", "position.weight", "norm.weight", "norm.bias"}
    assert network(some_tokens(network.architecture)).logits_BTV.shape == (3, 12, 11)


def test_post_norm_has_no_norm_before_the_head(declare: Declare) -> None:
    names = set(build(declare(norm={"kind": "layer", "placement": "post"}), seed=0).state_dict())
    assert "norm.weight" not in names
    assert "blocks.0.attention_norm.weight" in names


def test_without_biases_no_parameter_is_one(declare: Declare) -> None:
    moe = {"kind": "moe", "experts": 2, "top_k": 1}
    for network in (build(declare(bias=False), seed=0), build(declare(bias=False, ffn=moe), seed=0)):
        assert [name for name in network.state_dict() if name.endswith("bias")] == []


def test_dropout_acts_in_training_only(declare: Declare) -> None:
    architecture = declare(dropout=0.5)
    network, tokens_BT = build(architecture, seed=0), some_tokens(architecture)
    plain_BTV = build(declare(), seed=0)(tokens_BT).logits_BTV
    assert not torch.equal(network(tokens_BT).logits_BTV, network(tokens_BT).logits_BTV)
    assert torch.equal(network.eval()(tokens_BT).logits_BTV, plain_BTV)


def test_residual_stream_is_the_input_plus_every_increment(declare: Declare) -> None:
    """Unrolled, pre-norm layer N's output is the embedding plus each branch's own output."""
    network = build(declare(), seed=0, dtype=torch.float64)
    increments: list[Tensor] = []
    streams: list[Tensor] = []

    def keep(into: list[Tensor]) -> Callable[..., None]:
        return lambda module, inputs, output: into.append(output)

    for block in network.blocks:
        block.get_submodule("attention").register_forward_hook(keep(increments))
        block.get_submodule("ffn").register_forward_hook(keep(increments))
    network.blocks[-1].register_forward_hook(keep(streams))
    tokens_BT = some_tokens(network.architecture)
    network(tokens_BT)
    expected_BTD = network.embedding(tokens_BT) + network.get_parameter("position.weight") + sum(increments)
    assert len(increments) == 4
    assert torch.allclose(streams[0], expected_BTD, atol=1e-12)


def test_dynamo_traces_the_default_network_in_one_graph(declare: Declare) -> None:
    network, tokens_BT = build(declare(depth=1), seed=0, dtype=torch.float64), some_tokens(declare())
    expected_BTV = network(tokens_BT).logits_BTV
    names = set(network.state_dict())
    network.compile(backend="eager", fullgraph=True)
    assert torch.equal(network(tokens_BT).logits_BTV, expected_BTV)
    assert set(network.state_dict()) == names
