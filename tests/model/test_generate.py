"""A network that writes on: what it chooses, from what, and with how much reading."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from knockout.declare.architecture import Architecture
from knockout.declare.sampling import GreedySampling, Sampling, TemperatureSampling, TopKSampling, TopPSampling
from knockout.errors import InputError, RunError
from knockout.model import Network, build
from knockout.model.generate import decode, generate, prefill
from knockout.model.objective import next_token_logits
from knockout.model.sampling import choose, probabilities

Declare = Callable[..., Architecture]
SAMPLINGS: list[Sampling] = [
    GreedySampling(),
    TemperatureSampling(temperature=0.7),
    TopKSampling(k=4, temperature=1.3),
    TopPSampling(p=0.8),
]
PROMPT_BT = torch.tensor([[1, 2, 3], [7, 0, 5]])


@pytest.fixture
def network(declare: Declare) -> Network:
    return build(declare(init={"kind": "gpt2", "std": 0.5}), seed=0, dtype=torch.float64)


def written(tokens: Iterator[Tensor]) -> Tensor:
    return torch.stack(list(tokens), dim=1)


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=lambda sampling: sampling.kind)
def test_writing_equals_reading_everything_anew_for_each_token(network: Network, sampling: Sampling) -> None:
    tokens_BT = PROMPT_BT
    generator = torch.Generator().manual_seed(3)
    for _ in range(9):
        token_B = choose(network(tokens_BT).logits_BTV[:, -1].detach(), sampling=sampling, generator=generator)
        tokens_BT = torch.cat((tokens_BT, token_B[:, None]), dim=1)
    assert torch.equal(written(generate(network, PROMPT_BT, num_tokens=9, sampling=sampling, seed=3)), tokens_BT[:, 3:])


def test_the_seed_decides_and_the_global_generator_is_left_alone(network: Network) -> None:
    before = torch.random.get_rng_state()
    first, again, other = (
        written(generate(network, PROMPT_BT, num_tokens=9, sampling=TemperatureSampling(), seed=seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_greedy_takes_the_most_probable_token(network: Network) -> None:
    token_B = next(generate(network, PROMPT_BT, num_tokens=1, sampling=GreedySampling(), seed=0))
    assert torch.equal(token_B, network(PROMPT_BT).logits_BTV[:, -1].argmax(-1))


@pytest.mark.parametrize(
    "sampling", [TopKSampling(k=1), TopPSampling(p=1e-9), TemperatureSampling(temperature=1e-4)], ids=str
)
def test_the_narrowest_choice_is_greedy(network: Network, sampling: Sampling) -> None:
    tokens, greedy = (
        written(generate(network, PROMPT_BT, num_tokens=9, sampling=kind, seed=5)) for kind in (sampling, GreedySampling())
    )
    assert torch.equal(tokens, greedy)


def test_the_prompt_is_read_once_and_then_one_token_at_a_time(network: Network) -> None:
    lengths: list[int] = []
    network.register_forward_pre_hook(lambda module, inputs: lengths.append(inputs[0].shape[1]))
    list(generate(network, PROMPT_BT, num_tokens=5, sampling=GreedySampling(), seed=0))
    assert lengths == [3, 1, 1, 1, 1]


def test_prefill_and_decode_say_what_the_network_says(network: Network) -> None:
    tokens_BT = torch.tensor([[1, 2, 3, 4]])
    logits_BTV = network(tokens_BT).logits_BTV
    reading = prefill(network, tokens_BT[:, :3], capacity=4)
    assert torch.allclose(reading.logits_BV, logits_BTV[:, 2], atol=1e-12)
    assert torch.allclose(decode(network, tokens_BT[:, 3], reading=reading).logits_BV, logits_BTV[:, 3], atol=1e-12)


ANEW: list[dict[str, Any]] = [
    {"attention": {"kind": "multi_head", "causal": False}},
    {"objective": {"kind": "prefix"}},
    {"objective": {"kind": "masked"}, "skeleton": {"kind": "encoder"}, "attention": {"kind": "multi_head", "causal": False}},
]


@pytest.mark.parametrize("changes", ANEW, ids=["unmasked", "prefix", "masked"])
def test_a_network_that_reads_both_sides_writes_by_reading_anew(declare: Declare, changes: dict[str, Any]) -> None:
    network = build(declare(init={"kind": "gpt2", "std": 0.5}, **changes), seed=0, dtype=torch.float64)
    tokens_BT = PROMPT_BT
    for _ in range(4):
        tokens_BT = torch.cat((tokens_BT, next_token_logits(network, tokens_BT).argmax(-1, keepdim=True)), dim=1)
    found = written(generate(network, PROMPT_BT, num_tokens=4, sampling=GreedySampling(), seed=0))
    assert torch.equal(found, tokens_BT[:, 3:])


def test_more_tokens_than_learned_positions_are_refused_before_anything_is_written(network: Network) -> None:
    assert len(list(generate(network, PROMPT_BT, num_tokens=9, sampling=GreedySampling(), seed=0))) == 9
    with pytest.raises(InputError, match="prompt and new tokens are 13, more than the 12 positions"):
        generate(network, PROMPT_BT, num_tokens=10, sampling=GreedySampling(), seed=0)


def test_other_positions_write_beyond_their_context(declare: Declare) -> None:
    network = build(declare(position={"kind": "rotary"}), seed=0)
    assert len(list(generate(network, PROMPT_BT, num_tokens=30, sampling=TemperatureSampling(), seed=0))) == 30


def test_no_tokens_are_none(network: Network) -> None:
    assert list(generate(network, PROMPT_BT, num_tokens=0, sampling=GreedySampling(), seed=0)) == []


LOGITS_BV = torch.tensor([[2.0, 0.0, 1.0, -1.0]], dtype=torch.float64)


def test_temperature_divides_the_logits() -> None:
    found = probabilities(LOGITS_BV, sampling=TemperatureSampling(temperature=2.0))
    assert torch.allclose(found, (LOGITS_BV / 2).exp() / (LOGITS_BV / 2).exp().sum())


def test_top_k_keeps_the_k_most_probable_and_shares_out_the_rest() -> None:
    kept = LOGITS_BV.exp() * torch.tensor([1, 0, 1, 0])
    assert torch.allclose(probabilities(LOGITS_BV, sampling=TopKSampling(k=2)), kept / kept.sum())
    assert torch.allclose(probabilities(LOGITS_BV, sampling=TopKSampling(k=9)), LOGITS_BV.softmax(-1))


def test_top_p_keeps_the_fewest_that_reach_p() -> None:
    """The probabilities are 0.644, 0.237, 0.087 and 0.032."""
    for p, kept in ((0.6, [0]), (0.65, [0, 2]), (0.88, [0, 2]), (0.89, [0, 1, 2]), (1.0, [0, 1, 2, 3])):
        found = probabilities(LOGITS_BV, sampling=TopPSampling(p=p))
        assert found[0].nonzero().flatten().tolist() == kept
        assert found.sum().item() == pytest.approx(1.0)


def test_of_equal_tokens_the_lower_numbers_are_kept() -> None:
    equal_BV = torch.zeros(1, 5)
    assert probabilities(equal_BV, sampling=TopKSampling(k=2))[0].nonzero().flatten().tolist() == [0, 1]
    assert probabilities(equal_BV, sampling=TopPSampling(p=0.5))[0].nonzero().flatten().tolist() == [0, 1, 2]
    assert probabilities(equal_BV, sampling=GreedySampling())[0].tolist() == [1, 0, 0, 0, 0]


def test_choices_are_as_frequent_as_probable() -> None:
    many_BV, sampling = LOGITS_BV.expand(20000, 4), TopKSampling(k=3, temperature=0.8)
    chosen_B = choose(many_BV, sampling=sampling, generator=torch.Generator().manual_seed(1))
    frequencies = torch.bincount(chosen_B, minlength=4) / 20000
    assert torch.allclose(frequencies.double(), probabilities(LOGITS_BV, sampling=sampling)[0], atol=0.015)


@pytest.mark.parametrize("temperature", [1e-20, 1e-40, 1e-320])
def test_the_coldest_temperatures_are_greedy(temperature: float) -> None:
    for logits_BV in (LOGITS_BV, LOGITS_BV.float(), 1e4 * LOGITS_BV.float()):
        for sampling in (
            TemperatureSampling(temperature=temperature),
            TopKSampling(k=3, temperature=temperature),
            TopPSampling(p=0.9, temperature=temperature),
        ):
            assert probabilities(logits_BV, sampling=sampling).tolist() == [[1, 0, 0, 0]]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=lambda sampling: sampling.kind)
def test_tokens_that_the_tokenizer_does_not_know_are_never_chosen(network: Network, sampling: Sampling) -> None:
    free = written(generate(network, PROMPT_BT, num_tokens=9, sampling=sampling, seed=3))
    num_known = int(free.max())
    cut = written(generate(network, PROMPT_BT, num_tokens=9, sampling=sampling, seed=3, num_known=num_known))
    assert cut.max() < num_known


def test_a_network_that_diverged_writes_nothing(network: Network) -> None:
    with torch.no_grad():
        network.embedding.weight.fill_(torch.nan)
    with pytest.raises(RunError, match="not finite"):
        list(generate(network, PROMPT_BT, num_tokens=1, sampling=GreedySampling(), seed=0))
