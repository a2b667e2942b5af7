"""What each objective shows, hides and asks for, against counts and tables written out by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from torch import Tensor

from knockout.declare.architecture import Architecture
from knockout.declare.parts.objective import prefix_tokens
from knockout.model import build
from knockout.model.objective import Question, ask, ask_exam, next_token_logits

Declare = Callable[..., Architecture]
ENCODER: dict[str, Any] = {"skeleton": {"kind": "encoder"}, "attention": {"kind": "multi_head", "causal": False}}


def encoder(declare: Declare, **changes: Any) -> Architecture:
    masked = {key: changes.pop(key) for key in ("rate", "masked", "random") if key in changes}
    return declare(**ENCODER, objective={"kind": "masked", **masked}, **changes)


def some_windows(architecture: Architecture, *, num: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(61)
    return torch.randint(architecture.vocabulary, (num, architecture.context + 1), generator=generator)


def test_next_token_shows_all_but_the_last_and_asks_for_all_but_the_first(declare: Declare) -> None:
    windows_BW = some_windows(declare())
    question = ask(windows_BW, architecture=declare(), seed=0)
    assert torch.equal(question.shown_BT, windows_BW[:, :-1])
    assert torch.equal(question.answers_N, windows_BW[:, 1:].flatten())


def test_masked_tokens_are_chosen_hidden_replaced_and_kept_at_the_declared_shares(declare: Declare) -> None:
    """Devlin et al. 2019, section 3.1: of 15 %, 80 % the mask, 10 % a random token, 10 % themselves."""
    architecture = encoder(declare, context=200, vocabulary=1000)
    windows_BW = some_windows(architecture, num=500)
    question = ask(windows_BW, architecture=architecture, seed=3)
    assert question.counted_BT is not None
    assert question.counted_BT.sum(1).tolist() == [30] * 500
    shown, true = question.shown_BT[question.counted_BT], question.answers_N
    shares = [
        (shown == 1000).double().mean().item(),
        ((shown != 1000) & (shown != true)).double().mean().item(),
        (shown == true).double().mean().item(),
    ]
    # 15,000 draws: a share p has a standard deviation of sqrt(p (1 - p) / 15000), 0.0033 at most.
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=4 * 0.0033)
    assert torch.equal(question.shown_BT[~question.counted_BT], windows_BW[:, 1:][~question.counted_BT])
    often_T = question.counted_BT.double().mean(0)
    assert often_T.min() > 0.15 - 5 * 0.016, "every position is hidden as often"
    assert often_T.max() < 0.15 + 5 * 0.016
    others = shown[(shown != 1000) & (shown != true)]
    assert others.unique().numel() > 600, "a replacement is any token"


def test_a_pure_mask_leaves_no_hidden_token_in_sight(declare: Declare) -> None:
    architecture = encoder(declare, masked=1.0, random=0.0, rate=0.5)
    question = ask(some_windows(architecture), architecture=architecture, seed=0)
    assert question.counted_BT is not None
    assert torch.equal(question.shown_BT == architecture.vocabulary, question.counted_BT)
    assert question.counted_BT.sum(1).tolist() == [6] * 4


def test_at_least_one_token_is_hidden(declare: Declare) -> None:
    architecture = encoder(declare, rate=0.01)
    assert ask(some_windows(architecture), architecture=architecture, seed=0).answers_N.numel() == 4


def test_masks_follow_from_seed_and_part_alone(declare: Declare) -> None:
    architecture = encoder(declare)
    windows_BW = some_windows(architecture)

    def shown(seed: int, part: int) -> Tensor:
        return ask(windows_BW, architecture=architecture, seed=seed, part=part).shown_BT

    before = torch.random.get_rng_state()
    assert torch.equal(shown(1, 0), shown(1, 0))
    assert not torch.equal(shown(1, 0), shown(2, 0))
    assert not torch.equal(shown(1, 0), shown(1, 1))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_prefix_is_shown_and_the_rest_is_asked_for(declare: Declare) -> None:
    architecture = declare(objective={"kind": "prefix", "share": 0.25})
    windows_BW = some_windows(architecture)
    question = ask(windows_BW, architecture=architecture, seed=0)
    assert question.prefix == 3
    assert torch.equal(question.shown_BT, windows_BW[:, :-1])
    assert torch.equal(question.answers_N, windows_BW[:, 3:].flatten())


def test_a_drawn_prefix_has_every_length_and_the_same_in_all_parts_of_a_step(declare: Declare) -> None:
    architecture = declare(objective={"kind": "prefix"})
    windows_BW = some_windows(architecture)
    drawn = [ask(windows_BW, architecture=architecture, seed=seed).prefix for seed in range(300)]
    assert set(drawn) == set(range(1, 12))
    assert ask(windows_BW, architecture=architecture, seed=7, part=1).prefix == drawn[7]
    assert ask_exam(windows_BW, architecture=architecture, seed=0).prefix == 6


@pytest.mark.parametrize(("share", "num_tokens", "expected"), [(0.5, 12, 6), (0.01, 12, 1), (0.99, 12, 11), (0.5, 1, 1)])
def test_a_prefix_is_never_empty_nor_everything(share: float, num_tokens: int, expected: int) -> None:
    assert prefix_tokens(share, num_tokens=num_tokens) == expected


def test_a_question_is_split_without_a_change(declare: Declare) -> None:
    for architecture in (declare(), encoder(declare), declare(objective={"kind": "prefix", "share": 0.5})):
        question = ask(some_windows(architecture, num=7), architecture=architecture, seed=0)
        parts = question.split(3)
        assert [len(part.shown_BT) for part in parts] == [3, 3, 1]
        assert torch.equal(torch.cat([part.answers_N for part in parts]), question.answers_N)
        assert {part.prefix for part in parts} == {question.prefix}


def test_logits_of_answers_stand_where_the_answers_do(declare: Declare) -> None:
    for architecture in (declare(), encoder(declare), declare(objective={"kind": "prefix", "share": 0.5})):
        question = ask(some_windows(architecture), architecture=architecture, seed=0)
        knowing: Any = F.one_hot(question.answers_BT, architecture.vocabulary).double()

        def says(shown_BT: Tensor, knowing: Any = knowing, **_: int) -> Any:
            return type("Prediction", (), {"logits_BTV": knowing})

        logits_NV = question.logits_NV(question.put_to(says))
        assert torch.equal(logits_NV.argmax(-1), question.answers_N)


def test_a_mask_is_a_vector_of_its_own_and_no_token(declare: Declare) -> None:
    network = build(encoder(declare, embedding={"kind": "learned", "scaled": True}), seed=0)
    tokens_BT = torch.tensor([[3, 11, 10]])
    x_TD = network.embedding(tokens_BT)[0]
    assert torch.equal(x_TD[1], network.embedding.mask[0] * 4)
    assert torch.equal(x_TD[[0, 2]], network.embedding.weight[[3, 10]] * 4)
    assert network(torch.zeros(1, 12, dtype=torch.int64)).logits_BTV.shape == (1, 12, 11)


def test_a_masked_network_names_the_next_token_at_a_mask_behind_its_prefix(declare: Declare) -> None:
    network = build(encoder(declare), seed=0, dtype=torch.float64)
    prefix_BL = some_windows(network.architecture)[:, :5]
    behind_BL = torch.cat((prefix_BL, torch.full((4, 1), 11)), dim=1)
    assert torch.equal(next_token_logits(network, prefix_BL), network(behind_BL).logits_BTV[:, 5])
    whole_BT = some_windows(network.architecture)[:, :12]
    shifted_BT = torch.cat((whole_BT[:, 1:], torch.full((4, 1), 11)), dim=1)
    assert torch.equal(next_token_logits(network, whole_BT), network(shifted_BT).logits_BTV[:, 11])


def test_a_masked_network_reads_both_sides(declare: Declare) -> None:
    network = build(encoder(declare), seed=0, dtype=torch.float64)
    tokens_BT = torch.tensor([[1, 2, 11, 4, 5]])
    changed = network(tokens_BT).logits_BTV[0, 2] - network(torch.tensor([[1, 2, 11, 4, 6]])).logits_BTV[0, 2]
    assert changed.abs().max() > 0


def loss(question: Question, network: Any) -> Tensor:
    prediction = question.put_to(network)
    return F.cross_entropy(question.logits_NV(prediction), question.answers_N) + prediction.auxiliary_loss


def test_a_masked_network_learns_to_copy_from_both_sides(declare: Declare) -> None:
    network = build(encoder(declare, masked=1.0, random=0.0, rate=0.2), seed=0)
    windows_BW = torch.arange(8).unsqueeze(1).expand(8, 13)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    losses = []
    for step in range(60):
        found = loss(ask(windows_BW, architecture=network.architecture, seed=step), network)
        optimizer.zero_grad()
        found.backward()
        optimizer.step()
        losses.append(found.item())
    assert losses[-1] < 0.5 < 2.0 < losses[0]


PREFIXED = [
    {"kind": "multi_head"},
    {"kind": "multi_head", "computation": "explicit"},
    {"kind": "grouped", "kv_heads": 2},
    {"kind": "shared_qkv"},
    {"kind": "latent", "kv_rank": 8, "nope_width": 4, "rope_width": 2, "value_width": 4},
]


@pytest.mark.parametrize("attention", PREFIXED, ids=lambda attention: str(attention))
@pytest.mark.parametrize("position", ["learned", "rotary", "alibi"])
def test_a_prefix_is_read_in_both_directions_and_the_rest_is_causal(declare: Declare, attention: Any, position: str) -> None:
    """By changing one token at a time: which logits move is the mask of Raffel et al. 2020, figure 3, right."""
    changes = {"attention": attention, "position": {"kind": position}, "depth": 1, "context": 6}
    network = build(declare(objective={"kind": "prefix"}, init={"kind": "gpt2", "std": 0.5}, **changes), seed=0)
    network.double()
    tokens_BT = torch.tensor([[1, 2, 3, 4, 5, 6]])
    before_TV = network(tokens_BT, prefix=3).logits_BTV[0]
    for j in range(6):
        changed_BT = tokens_BT.clone()
        changed_BT[0, j] = 9
        moved_T = (network(changed_BT, prefix=3).logits_BTV[0] - before_TV).abs().amax(-1) > 1e-9
        assert moved_T.tolist() == [i >= j or j < 3 for i in range(6)]
    assert torch.equal(network(tokens_BT).logits_BTV[0], network(tokens_BT, prefix=0).logits_BTV[0])


def test_a_prefix_can_be_read_into_a_cache(declare: Declare) -> None:
    network = build(declare(objective={"kind": "prefix"}), seed=0, dtype=torch.float64)
    tokens_BT = some_windows(network.architecture)[:, :12]
    whole_BTV = network(tokens_BT, prefix=5).logits_BTV
    cache = network.new_cache(4, capacity=12)
    pieces = [network(tokens_BT[:, :5], cache=cache, prefix=5).logits_BTV]
    pieces += [network(tokens_BT[:, i : i + 1], cache=cache, prefix=5).logits_BTV for i in range(5, 12)]
    assert torch.allclose(torch.cat(pieces, dim=1), whole_BTV, atol=1e-10)


@pytest.mark.parametrize("share", [None, 0.25])
def test_next_token_logits_of_a_prefix_network_open_as_much_as_training_did(declare: Declare, share: float | None) -> None:
    network = build(declare(objective={"kind": "prefix", "share": share}), seed=0, dtype=torch.float64)
    prefix_BL = some_windows(network.architecture)[:, :7]
    opened = 3 if share else 7
    assert torch.equal(next_token_logits(network, prefix_BL), network(prefix_BL, prefix=opened).logits_BTV[:, -1])


@pytest.mark.parametrize(
    ("changes", "path", "reason"),
    [
        ({"objective": {"kind": "masked"}}, "objective.kind", "skeleton must be encoder, and is decoder"),
        ({**ENCODER}, "skeleton.kind", "next_token asks for"),
        ({"objective": {"kind": "masked"}, "skeleton": {"kind": "encoder"}}, "skeleton.kind", "set causal to false"),
        ({**ENCODER, "objective": {"kind": "masked", "random": 0.3}}, "objective.random", "together over 1"),
        ({**ENCODER, "objective": {"kind": "masked", "masked": 0.0}}, "objective.masked", "its vector is never trained"),
        ({**ENCODER, "objective": {"kind": "masked", "masked": 0.0, "random": 0.0}}, "objective.masked", "must stand for"),
        ({"objective": {"kind": "prefix"}, "attention": {"kind": "linear"}}, "objective.kind", "attention is linear"),
        ({"objective": {"kind": "prefix"}, "attention": {"kind": "lstm"}}, "objective.kind", "attention is lstm"),
        (
            {"objective": {"kind": "prefix"}, "attention": {"kind": "multi_head", "causal": False}},
            "objective.kind",
            "multi_head with causal false",
        ),
        ({"objective": {"kind": "prefix"}, "context": 1}, "context", "2 tokens at least"),
    ],
)
def test_what_would_see_its_answers_or_cannot_is_refused(
    declare: Declare, changes: dict[str, Any], path: str, reason: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        declare(**changes)
    found = {".".join(map(str, error["loc"])): error["msg"] for error in refused.value.errors()}
    assert list(found) == [path]
    assert reason in found[path]


def test_only_a_causal_network_of_the_next_token_has_a_comparable_exam(declare: Declare) -> None:
    assert declare().predicts_next
    assert not declare(attention={"kind": "multi_head", "causal": False}).predicts_next
    assert not declare(objective={"kind": "prefix"}).predicts_next
    assert not encoder(declare).predicts_next
