"""Each part against its formula, written here a second time."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from knockout.declare.architecture import Architecture
from knockout.model import build
from knockout.model.attention import build_attention
from knockout.model.embedding import build_embedding
from knockout.model.feed_forward import build_feed_forward
from knockout.model.head_position import HeadPosition
from knockout.model.initialise import initialise
from knockout.model.norm import build_norm
from knockout.model.position import build_head_position, build_position

Declare = Callable[..., Architecture]


def filled(part: Any) -> Any:
    """The part in float64 with every parameter, biases and gains too, drawn at random."""
    generator = torch.Generator().manual_seed(11)
    for parameter in part.parameters():
        nn.init.normal_(parameter, generator=generator)
    return part.double()


def some_stream(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(12))


def linear(x: Tensor, part: Any) -> Tensor:
    return x @ part.weight.T + part.bias


def test_gelu_part_is_its_formula(declare: Declare) -> None:
    ffn, x_BTD = filled(build_feed_forward(declare())), some_stream(2, 5, 16)
    hidden = linear(x_BTD, ffn.up)
    expected = linear(hidden * (1 + torch.erf(hidden / math.sqrt(2))) / 2, ffn.down)
    assert torch.allclose(ffn(x_BTD), expected, atol=1e-12)


def test_relu_part_is_its_formula(declare: Declare) -> None:
    ffn, x_BTD = filled(build_feed_forward(declare(ffn={"kind": "relu"}))), some_stream(2, 5, 16)
    hidden = linear(x_BTD, ffn.up)
    assert torch.allclose(ffn(x_BTD), linear(torch.where(hidden > 0, hidden, 0.0), ffn.down), atol=1e-12)


def test_linear_part_is_one_linear_map(declare: Declare) -> None:
    ffn, x_BTD = filled(build_feed_forward(declare(ffn={"kind": "linear"}))), some_stream(2, 5, 16)
    product = ffn.down.weight @ ffn.up.weight
    offset = ffn.down.weight @ ffn.up.bias + ffn.down.bias
    assert torch.allclose(ffn(x_BTD), x_BTD @ product.T + offset, atol=1e-10)


def test_swiglu_part_is_its_formula(declare: Declare) -> None:
    ffn, x_BTD = filled(build_feed_forward(declare(ffn={"kind": "swiglu"}))), some_stream(2, 5, 16)
    gate = linear(x_BTD, ffn.gate)
    expected = linear(gate / (1 + torch.exp(-gate)) * linear(x_BTD, ffn.up), ffn.down)
    assert torch.allclose(ffn(x_BTD), expected, atol=1e-12)


def test_layer_norm_is_its_formula(declare: Declare) -> None:
    norm, x_BTD = filled(build_norm(declare(norm={"kind": "layer", "eps": 0.1}))), some_stream(2, 5, 16)
    centred = x_BTD - x_BTD.mean(-1, keepdim=True)
    expected = centred / (centred.square().mean(-1, keepdim=True) + 0.1).sqrt() * norm.weight + norm.bias
    assert torch.allclose(norm(x_BTD), expected, atol=1e-12)


def test_rms_norm_is_its_formula(declare: Declare) -> None:
    norm, x_BTD = filled(build_norm(declare(norm={"kind": "rms", "eps": 0.1}))), some_stream(2, 5, 16)
    expected = x_BTD / (x_BTD.square().mean(-1, keepdim=True) + 0.1).sqrt() * norm.weight
    assert torch.allclose(norm(x_BTD), expected, atol=1e-12)


def test_scaled_embedding_is_the_row_times_the_root_of_the_width(declare: Declare) -> None:
    embedding = filled(build_embedding(declare(embedding={"kind": "learned", "scaled": True})))
    assert torch.equal(embedding(torch.tensor([[3, 7]]))[0], embedding.weight[[3, 7]] * 4)


def test_sinusoidal_positions_are_their_formula_at_any_length(declare: Declare) -> None:
    stream = build_position(declare(position={"kind": "sinusoidal"})).double()
    for length in (5, 12, 40):
        table_TD = stream(torch.zeros(1, length, 16, dtype=torch.float64))[0]
        for position in range(length):
            for i in range(8):
                angle = position / 10000 ** (2 * i / 16)
                assert table_TD[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
                assert table_TD[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_rotary_positions_turn_every_pair_in_the_complex_plane(declare: Declare) -> None:
    rotate = build_head_position(declare(width=32, position={"kind": "rotary", "base": 100.0})).double()
    x_BHTK = some_stream(1, 2, 20, 8)  # longer than the context of 12
    turned_BHTK = rotate(x_BHTK)
    for head in range(2):
        for position in range(20):
            for k in range(4):
                before = complex(*x_BHTK[0, head, position, [k, k + 4]].tolist())
                after = before * cmath.exp(1j * position * 100 ** (-2 * k / 8))
                assert turned_BHTK[0, head, position, [k, k + 4]].tolist() == pytest.approx([after.real, after.imag])


def test_rotary_scores_depend_on_the_offset_alone(declare: Declare) -> None:
    rotate = build_head_position(declare(width=32, position={"kind": "rotary"})).double()
    query_K, key_K = some_stream(2, 8)
    queries_TK = rotate(query_K.expand(1, 1, 12, 8))[0, 0]
    keys_TK = rotate(key_K.expand(1, 1, 12, 8))[0, 0]
    scores_TT = queries_TK @ keys_TK.T
    for offset in range(-11, 12):
        diagonal = scores_TT.diagonal(offset)
        assert torch.allclose(diagonal, diagonal[0].expand_as(diagonal), atol=1e-6)
    assert (scores_TT.diagonal(0)[0] - scores_TT.diagonal(1)[0]).abs() > 1e-3


def test_learned_positions_refuse_a_sequence_longer_than_they_are(declare: Declare) -> None:
    network = build(declare(), seed=0)
    with pytest.raises(ValueError, match="13 tokens is longer than the 12 learned positions"):
        network(torch.zeros(1, 13, dtype=torch.int64))


@pytest.mark.parametrize("kind", ["sinusoidal", "rotary", "none"])
def test_other_positions_read_sequences_of_any_length(declare: Declare, kind: str) -> None:
    network = build(declare(position={"kind": kind}), seed=0)
    assert network(torch.zeros(1, 50, dtype=torch.int64)).logits_BTV.isfinite().all()


@pytest.mark.parametrize(
    ("attention", "num_heads", "num_kv_heads"),
    [
        ({"kind": "multi_head"}, 4, 4),
        ({"kind": "multi_head", "causal": False}, 4, 4),
        ({"kind": "single_head"}, 1, 1),
        ({"kind": "grouped", "kv_heads": 2}, 4, 2),
        ({"kind": "grouped", "kv_heads": 1}, 4, 1),
    ],
)
def test_attention_is_its_formula_head_by_head(
    declare: Declare, attention: dict[str, object], num_heads: int, num_kv_heads: int
) -> None:
    part = filled(build_attention(declare(attention=attention), position=HeadPosition()))
    x_TD, width = some_stream(6, 16), 16 // num_heads
    query_TD, key_TD, value_TD = (linear(x_TD, part.get_submodule(name)) for name in ("query", "key", "value"))
    read = []
    for head in range(num_heads):
        own, shared = head * width, head * num_kv_heads // num_heads * width
        scores_TT = query_TD[:, own : own + width] @ key_TD[:, shared : shared + width].T / math.sqrt(width)
        if attention.get("causal", True):
            scores_TT = scores_TT.masked_fill(torch.ones(6, 6).triu(1).bool(), -math.inf)
        weights_TT = scores_TT.exp() / scores_TT.exp().sum(-1, keepdim=True)
        read.append(weights_TT @ value_TD[:, shared : shared + width])
    assert torch.allclose(part(x_TD[None])[0], linear(torch.cat(read, -1), part.output), atol=1e-10)


def test_no_two_parts_of_a_network_share_a_weight(declare: Declare) -> None:
    network = build(declare(), seed=0)
    initialise(network, architecture=network.architecture, seed=0)
    pointers = [parameter.data_ptr() for parameter in network.parameters()]
    assert len(set(pointers)) == len(pointers)
