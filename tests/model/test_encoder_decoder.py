"""Two stacks against torch's own Transformer, and who reads whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from torch import Tensor, nn

from knockout.declare.architecture import Architecture
from knockout.model import build
from knockout.model.encoder_decoder import EncoderDecoder
from knockout.model.identities import future_leak, shrink
from knockout.model.objective import ask, next_token_logits

Declare = Callable[..., Architecture]
TWO_STACKS: dict[str, Any] = {
    "skeleton": {"kind": "encoder_decoder", "encoder_depth": 3},
    "objective": {"kind": "prefix", "share": 0.5},
}

HEADS, FEED = {"pattern": [{"attention": {"kind": "multi_head"}}]}, {"pattern": [{"ffn": {"kind": "gelu"}}]}
LATENT_5 = {"kind": "latent", "kv_rank": 8, "nope_width": 4, "rope_width": 5, "value_width": 4}
POST = {"norm": {"kind": "layer", "placement": "post"}}


def two_stacks(declare: Declare, **changes: Any) -> Any:
    network = build(declare(**TWO_STACKS, **changes), seed=0)
    assert isinstance(network, EncoderDecoder)
    generator = torch.Generator().manual_seed(71)
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.4, generator=generator)
    return network.double().eval()


def some_tokens() -> Tensor:
    return torch.randint(11, (4, 12), generator=torch.Generator().manual_seed(72))


def set_attention(theirs: nn.MultiheadAttention, ours: Any) -> None:
    theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
    theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key.bias, ours.value.bias]))
    theirs.out_proj.weight.copy_(ours.output.weight)
    theirs.out_proj.bias.copy_(ours.output.bias)


def set_layer(theirs: Any, ours: Any, *, norms: list[str]) -> None:
    set_attention(theirs.self_attn, ours.attention)
    theirs.linear1.load_state_dict(ours.ffn.up.state_dict())
    theirs.linear2.load_state_dict(ours.ffn.down.state_dict())
    for number, name in enumerate(norms, start=1):
        getattr(theirs, f"norm{number}").load_state_dict(getattr(ours, name).state_dict())


@torch.no_grad()
def torchs_transformer(network: Any) -> nn.Transformer:
    """torch.nn.Transformer with the network's weights: norms first, GELU, a norm after each stack."""
    kwargs = {"norm_first": True, "activation": F.gelu, "batch_first": True, "dropout": 0.0, "dtype": torch.float64}
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(16, 4, 64, **kwargs), 3, norm=nn.LayerNorm(16), enable_nested_tensor=False
    )
    theirs = nn.Transformer(16, 4, 3, 2, 64, custom_encoder=encoder, **kwargs).double()
    for their_layer, our_block in zip(theirs.encoder.layers, network.encoder, strict=True):
        set_layer(their_layer, our_block, norms=["attention_norm", "ffn_norm"])
    for their_layer, our_block in zip(theirs.decoder.layers, network.blocks, strict=True):
        set_layer(their_layer, our_block, norms=["attention_norm", "cross_norm", "ffn_norm"])
        set_attention(their_layer.multihead_attn, our_block.cross)
    theirs.encoder.norm.load_state_dict(network.encoder_norm.state_dict())  # type: ignore[union-attr]
    theirs.decoder.norm.load_state_dict(network.norm.state_dict())  # type: ignore[union-attr]
    return theirs.eval()


@torch.no_grad()
def test_two_stacks_are_torchs_transformer(declare: Declare) -> None:
    network, tokens_BT = two_stacks(declare), some_tokens()
    theirs = torchs_transformer(network)
    x_BTD = network.embedding(tokens_BT) + network.position.weight[:12]
    mask_TT = nn.Transformer.generate_square_subsequent_mask(7, dtype=torch.float64)
    y_BTD = theirs(x_BTD[:, :6], x_BTD[:, 5:], tgt_mask=mask_TT, tgt_is_causal=True)
    expected_BTV = y_BTD @ network.embedding.weight.T
    assert torch.allclose(network(tokens_BT, prefix=6).logits_BTV, expected_BTV, atol=1e-9)


@pytest.mark.parametrize("position", ["learned", "rotary", "alibi", "none"])
def test_the_prefix_is_read_in_both_directions_and_the_rest_token_by_token(declare: Declare, position: str) -> None:
    network, tokens_BT = two_stacks(declare, position={"kind": position}, depth=1), some_tokens()[:1, :6]
    before_TV = network(tokens_BT, prefix=3).logits_BTV[0]
    assert before_TV.shape == (4, 11)
    for j in range(6):
        changed_BT = tokens_BT.clone()
        changed_BT[0, j] = (changed_BT[0, j] + 1) % 11
        moved_T = (network(changed_BT, prefix=3).logits_BTV[0] - before_TV).abs().amax(-1) > 1e-9
        assert moved_T.tolist() == [j < 3 or i >= j for i in range(2, 6)]


def test_with_a_cache_the_rest_is_predicted_as_without(declare: Declare) -> None:
    network, tokens_BT = two_stacks(declare, position={"kind": "rotary"}), some_tokens()
    whole_BTV = network(tokens_BT, prefix=5).logits_BTV
    cache = network.new_cache(4, capacity=12)
    pieces = [network(tokens_BT[:, :7], cache=cache, prefix=5).logits_BTV]
    pieces += [network(tokens_BT[:, i : i + 1], cache=cache).logits_BTV for i in range(7, 12)]
    assert torch.allclose(torch.cat(pieces, dim=1), whole_BTV, atol=1e-10)
    assert cache.length == 12


def test_next_token_logits_give_the_first_stack_as_much_as_training_did(declare: Declare) -> None:
    network, tokens_BT = two_stacks(declare), some_tokens()
    for length, prefix in ((1, 1), (4, 4), (9, 6)):
        expected_BV = network(tokens_BT[:, :length], prefix=prefix).logits_BTV[:, -1]
        assert torch.equal(next_token_logits(network, tokens_BT[:, :length]), expected_BV)


def test_two_stacks_learn_to_repeat_their_prefix(declare: Declare) -> None:
    """A task for the branch between the stacks: the rest is the prefix's first token again and again."""
    network = build(declare(**TWO_STACKS, depth=1), seed=0)
    windows_BW = torch.randint(11, (64, 13), generator=torch.Generator().manual_seed(73))
    windows_BW[:, 6:] = windows_BW[:, :1]
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    losses = []
    for _ in range(80):
        question = ask(windows_BW, architecture=network.architecture, seed=0)
        prediction = question.put_to(network)
        loss = F.cross_entropy(question.logits_NV(prediction), question.answers_N)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.6 < 2.0 < losses[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"attention": {"kind": "grouped", "kv_heads": 2}},
        {"attention": {"kind": "linear"}},
        {"attention": {"kind": "latent", "kv_rank": 8, "nope_width": 4, "rope_width": 2, "value_width": 4}},
        {"ffn": {"kind": "moe", "experts": 4, "top_k": 2, "shared": 1, "first_dense": 1}},
        {"ffn": {"kind": "none"}},
        {"norm": {"kind": "rms", "placement": "post"}},
        {"norm": {"kind": "layer", "placement": "sandwich"}},
        {"residual": {"kind": "rezero"}},
        {"pattern": [{"attention": {"kind": "gru"}}, {}]},
    ],
    ids=str,
)
def test_the_other_slots_serve_two_stacks_as_they_serve_one(declare: Declare, changes: dict[str, Any]) -> None:
    network = two_stacks(declare, **changes)
    question = ask(some_tokens(), architecture=network.architecture, seed=0)
    prediction = question.put_to(network)
    (F.cross_entropy(question.logits_NV(prediction), question.answers_N) + prediction.auxiliary_loss).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert name.endswith("key.bias") or parameter.grad.abs().max() > 0, name


def test_each_stack_scales_its_branches_by_how_many_it_adds(declare: Declare) -> None:
    network = build(declare(**TWO_STACKS, width=128, depth=8), seed=0)
    for name, branches in (("encoder.1.attention.output", 6), ("blocks.1.cross.output", 24), ("blocks.1.ffn.down", 24)):
        weight = network.get_parameter(f"{name}.weight")
        assert weight.std().item() == pytest.approx(0.02 / branches**0.5, rel=0.05), name


@pytest.mark.parametrize(
    ("changes", "path", "reason"),
    [
        ({"objective": {"kind": "next_token"}}, "skeleton.kind", "objective must be prefix, and is next_token"),
        ({"attention": {"kind": "window", "window": 4}}, "skeleton.kind", "window can only read the past"),
        ({"attention": {"kind": "gru"}}, "skeleton.kind", "gru can only read the past"),
        ({"attention": {"kind": "multi_head", "causal": False}}, "skeleton.kind", "attention.causal must be true"),
        ({"block": {"kind": "parallel"}}, "block.kind", "three branches in turn"),
        (
            {"residual": {"kind": "deepnorm"}, "norm": {"kind": "layer", "placement": "post"}},
            "residual.kind",
            "constants here are those of one stack",
        ),
        ({"heads": 3, "attention": {"kind": "single_head"}}, "heads", "3 heads do not divide width 16"),
        ({"depth": 0}, "depth", "read in the blocks of the second"),
        ({"attention": {"kind": "grouped", "kv_heads": 3}, **HEADS}, "attention.kv_heads", "3 key/value heads do not"),
        ({"attention": LATENT_5, "position": {"kind": "rotary"}, **HEADS}, "attention.rope_width", "5 must be even"),
        ({"ffn": {"kind": "moe", "experts": 2, "top_k": 5}, **FEED}, "ffn.top_k", "5 is more than the 2 experts"),
        ({"ffn": {"kind": "moe", "experts": 2, "top_k": 1, "first_dense": 3}, **FEED}, "ffn.first_dense", "no layer"),
        ({"ffn": {"kind": "gelu", "hidden": 8, "expansion": 2.0}, **FEED}, "ffn.hidden", "exclude each other"),
        (
            {"residual": {"kind": "deepnorm"}, **POST, "pattern": [{"residual": {"kind": "plain"}}]},
            "residual.kind",
            "constants here are those of one stack",
        ),
    ],
)
def test_what_two_stacks_cannot_have_is_refused(declare: Declare, changes: dict[str, Any], path: str, reason: str) -> None:
    with pytest.raises(ValidationError) as refused:
        declare(**{**TWO_STACKS, **changes})
    found = {".".join(map(str, error["loc"])): error["msg"] for error in refused.value.errors()}
    assert list(found) == [path]
    assert reason in found[path]


@pytest.mark.parametrize("changes", [{}, {"depth": 1}, {"pattern": [{"attention": {"kind": "gru"}}, {}]}], ids=str)
def test_what_two_stacks_see_is_found_out_on_a_small_copy(declare: Declare, changes: dict[str, Any]) -> None:
    large = {"width": 256, "heads": 8, "depth": 12, "context": 512, "vocabulary": 5000}
    skeleton = {"kind": "encoder_decoder", "encoder_depth": 24}
    architecture = declare(**{**TWO_STACKS, **large, "skeleton": skeleton, **changes})
    assert shrink(architecture).skeleton.model_dump()["encoder_depth"] == 4
    assert future_leak(architecture, seed=0) < 1e-12


def test_a_small_copy_has_the_heads_between_the_stacks_where_its_own_layers_have_none(declare: Declare) -> None:
    architecture = declare(**TWO_STACKS, width=96, heads=12, pattern=[{"attention": {"kind": "gru"}}])
    assert future_leak(architecture, seed=0) < 1e-12


def test_positions_inside_heads_may_be_the_first_stacks_alone(declare: Declare) -> None:
    architecture = declare(**TWO_STACKS, position={"kind": "rotary"}, pattern=[{"attention": {"kind": "gru"}}])
    assert build(architecture, seed=0)(some_tokens(), prefix=6).logits_BTV.isfinite().all()
