"""Documents in one window that are read each by itself: as if every one had been run alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from knockout.declare.architecture import Architecture
from knockout.declare.sampling import GreedySampling
from knockout.model import Network, build
from knockout.model.documents import Documents, chunks_of, documents_in
from knockout.model.generate import generate
from knockout.model.objective import ask, next_token_logits

Declare = Callable[..., Architecture]
END = 0
LATENT = {"kind": "latent", "kv_rank": 6, "nope_width": 3, "rope_width": 4, "value_width": 5}
ANYWHERE = ("learned", "sinusoidal", "rotary", "alibi", "none")
ADDED = ("learned", "sinusoidal", "none")
MIXERS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "multi_head": ({"kind": "multi_head"}, ANYWHERE),
    "explicit": ({"kind": "multi_head", "computation": "explicit", "qk_norm": "rms"}, ANYWHERE),
    "single_head": ({"kind": "single_head"}, ANYWHERE),
    "grouped": ({"kind": "grouped", "kv_heads": 2}, ANYWHERE),
    "shared_qkv": ({"kind": "shared_qkv"}, ANYWHERE),
    "latent": ({**LATENT, "q_rank": 5}, ANYWHERE),
    "window": ({"kind": "window", "window": 3}, ANYWHERE),
    "wide_window": ({"kind": "window", "window": 9, "kv_heads": 1}, ANYWHERE),
    "linear": ({"kind": "linear"}, ("learned", "sinusoidal", "rotary", "none")),
    "retention": ({"kind": "retention"}, ("learned", "sinusoidal", "rotary", "none")),
    "rnn": ({"kind": "rnn"}, ADDED),
    "gru": ({"kind": "gru"}, ADDED),
    "lstm": ({"kind": "lstm"}, ADDED),
    "selective_ssm": ({"kind": "selective_ssm"}, ADDED),
    "none": ({"kind": "none"}, ADDED),
}
EVERY = [(name, position) for name, (_, positions) in MIXERS.items() for position in positions]
every = pytest.mark.parametrize(("mixer", "position"), EVERY, ids=["-".join(names) for names in EVERY])


def network_of(declare: Declare, mixer: str, position: str, **changes: Any) -> Network:
    """In float64, with weights large enough that whatever is read shows."""
    architecture = declare(attention=MIXERS[mixer][0], position={"kind": position}, **{"context": 160, **changes})
    network = build(architecture, seed=0, dtype=torch.float64).eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=torch.Generator().manual_seed(6))
    return network


def text(*sizes: int, seed: int = 1) -> list[Tensor]:
    """Documents of so many tokens, the end-of-text included; one that ends the window may lack it."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.cat((torch.randint(1, 11, (size - 1,), generator=generator), torch.tensor([END]))) for size in sizes]


def read(network: Network, tokens_BT: Tensor) -> Tensor:
    return network(tokens_BT, documents=documents_in(tokens_BT, end_of_text=END)).logits_BTV


def alone(network: Network, pieces: list[Tensor]) -> Tensor:
    return torch.cat([network(piece.unsqueeze(0)).logits_BTV for piece in pieces], dim=1)


def test_an_end_of_text_belongs_to_the_document_that_it_ends() -> None:
    found = documents_in(torch.tensor([[5, END, 3, 4, END, END, 7]]), end_of_text=END)
    assert found is not None
    assert found.number_BS.tolist() == [[0, 0, 1, 1, 1, 2, 3]]
    assert found.position_BS.tolist() == [[0, 1, 0, 1, 2, 0, 0]]


@pytest.mark.parametrize("tokens", [[[1, 2, 3]], [[1, 2, END]], [[4, 5, END], [6, 7, 8]]], ids=str)
def test_an_end_of_text_after_which_nothing_comes_is_no_border(tokens: list[list[int]]) -> None:
    assert documents_in(torch.tensor(tokens), end_of_text=END) is None
    assert documents_in(torch.tensor([[END, 1]]), end_of_text=None) is None


@given(st.lists(st.booleans(), min_size=1, max_size=30), st.integers(1, 7))
def test_chunks_say_of_tokens_and_states_what_their_documents_say(first: list[bool], size: int) -> None:
    """Against the numbers of the documents, token by token."""
    number = [sum(first[: place + 1]) for place in range(len(first))]
    filled = number + [number[-1]] * (-len(number) % size)
    chunks = [filled[start : start + size] for start in range(0, len(filled), size)]
    found = chunks_of(torch.tensor([first]), size=size)
    before = [0] + [chunk[-1] for chunk in chunks[:-1]]
    assert found.same_B1NCC[0, 0].tolist() == [[[a == b for b in chunk] for a in chunk] for chunk in chunks]
    assert found.leaves_B1NC1[0, 0, ..., 0].tolist() == [[a == chunk[-1] for a in chunk] for chunk in chunks]
    assert found.reads_B1NC1[0, 0, ..., 0].tolist() == [
        [a == past for a in chunk] for chunk, past in zip(chunks, before, strict=True)
    ]
    assert found.passes_BN[0].tolist() == [chunk[-1] == past for chunk, past in zip(chunks, before, strict=True)]


@torch.no_grad()
@every
def test_every_document_says_what_it_says_alone(declare: Declare, mixer: str, position: str) -> None:
    network = network_of(declare, mixer, position)
    windows = [text(7, 1, 1, 66, 1, 74), text(65, 64, 21, seed=2)]
    found_BTV = read(network, torch.stack([torch.cat(pieces) for pieces in windows]))
    for row_TV, pieces in zip(found_BTV, windows, strict=True):
        assert (row_TV - alone(network, pieces)[0]).abs().max() < 1e-12


@torch.no_grad()
@every
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(0, 5), st.integers(1, 9), st.integers(0, 99))
def test_one_document_changes_no_others_logits_by_its_words_or_length(
    declare: Declare, mixer: str, position: str, sizes: list[int], place: int, other_size: int, seed: int
) -> None:
    network, place = network_of(declare, mixer, position, depth=3), place % len(sizes)
    pieces = text(*sizes, seed=seed)
    start, end = sum(sizes[:place]), sum(sizes[: place + 1])
    found_TV = read(network, torch.cat(pieces).unsqueeze(0))[0]
    pieces[place] = text(sizes[place], seed=seed + 1)[0]
    reworded_TV = read(network, torch.cat(pieces).unsqueeze(0))[0]
    assert torch.equal(torch.cat((reworded_TV[:start], reworded_TV[end:])), torch.cat((found_TV[:start], found_TV[end:])))
    pieces[place] = text(other_size, seed=seed + 2)[0]
    longer_TV = read(network, torch.cat(pieces).unsqueeze(0))[0]
    kept_TV = torch.cat((longer_TV[:start], longer_TV[start + other_size :]))
    assert torch.allclose(kept_TV, torch.cat((found_TV[:start], found_TV[end:])), rtol=0.0, atol=1e-12)


@torch.no_grad()
@every
def test_without_documents_a_document_does_read_those_before_it(declare: Declare, mixer: str, position: str) -> None:
    if mixer == "none":
        return
    network, pieces = network_of(declare, mixer, position), text(6, 6)
    tokens_BT = torch.cat(pieces).unsqueeze(0)
    assert (network(tokens_BT).logits_BTV - read(network, tokens_BT))[0, 6:].abs().max() > 1e-4


@torch.no_grad()
@every
def test_documents_are_causal_too(declare: Declare, mixer: str, position: str) -> None:
    network, tokens_BT = network_of(declare, mixer, position), torch.cat(text(5, 9, 4)).unsqueeze(0)
    changed_BT = torch.cat((tokens_BT[:, :8], tokens_BT[:, 8:].flip(1)), dim=1)
    assert torch.allclose(read(network, changed_BT)[:, :8], read(network, tokens_BT)[:, :8], rtol=0.0, atol=1e-12)


@every
def test_gradients_are_the_sum_of_each_documents_own(declare: Declare, mixer: str, position: str) -> None:
    network, pieces = network_of(declare, mixer, position), text(7, 1, 66, 5)
    weight_TV = torch.randn(79, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    wanted = [parameter for parameter in network.parameters() if parameter.requires_grad]
    together = torch.autograd.grad((read(network, torch.cat(pieces).unsqueeze(0)) * weight_TV).sum(), wanted)
    apart = torch.autograd.grad((alone(network, pieces) * weight_TV).sum(), wanted)
    for one, other in zip(together, apart, strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-9)


@torch.no_grad()
@every
def test_windows_without_a_border_are_what_contiguous_ones_are(declare: Declare, mixer: str, position: str) -> None:
    network, tokens_BT = network_of(declare, mixer, position).float(), torch.stack((text(70)[0], text(70, seed=2)[0]))
    usual_BTV = network(tokens_BT).logits_BTV
    assert torch.equal(read(network, tokens_BT), usual_BTV)
    place_BT = torch.arange(70).expand(2, -1)
    looked_at_BTV = network(tokens_BT, documents=Documents(torch.zeros_like(place_BT), place_BT)).logits_BTV
    assert torch.allclose(looked_at_BTV, usual_BTV, rtol=0.0, atol=1e-5)


@torch.no_grad()
@every
@pytest.mark.parametrize("split", [[3, 2, 1, 1, 60, 4, 9], [1] * 80], ids=len)
def test_a_cache_keeps_to_the_documents(declare: Declare, mixer: str, position: str, split: list[int]) -> None:
    network = network_of(declare, mixer, position)
    tokens_BT = torch.stack([torch.cat(text(7, 1, 1, 66, 5)), torch.cat(text(40, 40, seed=2))])
    cache, parts, length = network.new_cache(2, capacity=80), [], 0
    for size in split:
        documents = documents_in(tokens_BT[:, : length + size], end_of_text=END)
        parts.append(network(tokens_BT[:, length : length + size], cache=cache, documents=documents).logits_BTV)
        length += size
    assert (torch.cat(parts, dim=1) - read(network, tokens_BT)).abs().max() < 1e-12


@torch.no_grad()
@pytest.mark.parametrize("kind", ["multi_head", "single_head", "shared_qkv"])
def test_attention_that_sees_later_tokens_sees_those_of_its_document_alone(declare: Declare, kind: str) -> None:
    network = build(declare(attention={"kind": kind, "causal": False}), seed=0, dtype=torch.float64).eval()
    pieces = text(4, 5, 3)
    assert (read(network, torch.cat(pieces).unsqueeze(0)) - alone(network, pieces)).abs().max() < 1e-12


@torch.no_grad()
def test_layers_of_different_kinds_keep_to_the_documents_together(declare: Declare) -> None:
    pattern = [{"attention": MIXERS[name][0]} for name in ("window", "selective_ssm", "multi_head", "linear")]
    experts = {"kind": "moe", "experts": 4, "top_k": 2}
    mixed = declare(depth=4, context=160, pattern=pattern, block={"kind": "parallel"}, ffn=experts)
    network, pieces = build(mixed, seed=0, dtype=torch.float64).eval(), text(30, 2, 70)
    assert (read(network, torch.cat(pieces).unsqueeze(0)) - alone(network, pieces)).abs().max() < 1e-12


@torch.no_grad()
def test_the_mask_is_one_of_truth_values_for_all_heads(declare: Declare, monkeypatch: pytest.MonkeyPatch) -> None:
    masks: list[Tensor] = []
    usual = F.scaled_dot_product_attention

    def noting(*inputs: Tensor, attn_mask: Tensor, **named: Any) -> Tensor:
        masks.append(attn_mask)
        return usual(*inputs, attn_mask=attn_mask, **named)

    monkeypatch.setattr(F, "scaled_dot_product_attention", noting)
    read(network_of(declare, "multi_head", "rotary"), torch.stack((torch.cat(text(4, 4)), torch.cat(text(6, 2)))))
    assert [(mask.dtype, tuple(mask.shape)) for mask in masks] == [(torch.bool, (2, 1, 8, 8))] * 2


def test_compiled_networks_keep_to_the_documents(declare: Declare) -> None:
    network, pieces = network_of(declare, "multi_head", "learned"), text(4, 5, 3)
    expected_BTV = alone(network, pieces)
    network.compile(backend="eager", fullgraph=True)
    assert (read(network, torch.cat(pieces).unsqueeze(0)) - expected_BTV).abs().max() < 1e-12


def test_a_question_is_about_documents_and_may_be_cut_into_fewer_windows(declare: Declare) -> None:
    network = network_of(declare, "multi_head", "learned", context=12)
    windows_BW = torch.stack([torch.cat(text(5, 8, seed=seed)) for seed in range(3)])
    question = ask(windows_BW, architecture=network.architecture, seed=0, end_of_text=END)
    whole_BTV = question.put_to(network).logits_BTV
    assert torch.equal(whole_BTV, read(network, windows_BW[:, :-1]))
    assert question.answers_N.tolist() == windows_BW[:, 1:].flatten().tolist()
    parts = [part.put_to(network).logits_BTV for part in question.split(2)]
    assert [len(part) for part in parts] == [2, 1]
    assert torch.allclose(torch.cat(parts), whole_BTV, rtol=0.0, atol=1e-12)


@torch.no_grad()
@every
def test_a_prefix_is_read_from_its_last_border_on(declare: Declare, mixer: str, position: str) -> None:
    network = network_of(declare, mixer, position)
    prefix_BL = torch.cat((*text(5, 3), torch.tensor([4, 9]))).unsqueeze(0)
    found_BV = next_token_logits(network, prefix_BL, end_of_text=END)
    assert torch.allclose(found_BV, network(prefix_BL[:, 8:]).logits_BTV[:, -1], rtol=0.0, atol=1e-12)


@every
def test_what_is_written_after_a_border_does_not_read_what_stands_before_it(
    declare: Declare, mixer: str, position: str
) -> None:
    """Also where the network itself writes the end-of-text: each step against the tokens after the last one, alone."""
    network = network_of(declare, mixer, position)
    prompt_BT = torch.tensor([[7, END, 3, 4], [5, 6, 2, END]])
    steps = list(generate(network, prompt_BT, num_tokens=9, sampling=GreedySampling(), seed=0, end_of_text=END))
    written_BT = torch.cat((prompt_BT, torch.stack(steps, dim=1)), dim=1)
    for row_T in written_BT:
        for length in range(4, 13):
            ends = (row_T[: length - 1] == END).nonzero().flatten().tolist()
            here_L = row_T[ends[-1] + 1 if ends else 0 : length]
            assert network(here_L.unsqueeze(0)).logits_BTV[0, -1].argmax() == row_T[length]
