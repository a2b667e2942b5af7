"""Every kind of attention against its formula, written here a second time, token by token and head by head."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from knockout.declare.architecture import Architecture
from knockout.model.attention import build_attention
from knockout.model.head_position import HeadPosition
from knockout.model.position import build_head_position

Declare = Callable[..., Architecture]
LATENT = {"kind": "latent", "kv_rank": 6, "nope_width": 3, "rope_width": 4, "value_width": 5}
SCORED: list[dict[str, Any]] = [
    {"kind": "multi_head"},
    {"kind": "multi_head", "causal": False},
    {"kind": "single_head", "qk_norm": "layer"},
    {"kind": "grouped", "kv_heads": 2, "scale": 0.3},
    {"kind": "grouped", "kv_heads": 1, "causal": False},
    {"kind": "shared_qkv", "qk_norm": "rms"},
    LATENT,
    {**LATENT, "causal": False},
    {"kind": "window", "window": 3},
    {"kind": "window", "window": 5, "kv_heads": 2},
]


def filled(part: Any) -> Any:
    generator = torch.Generator().manual_seed(41)
    for parameter in part.parameters():
        nn.init.normal_(parameter, generator=generator)
    return part.double().eval()


def attention(architecture: Architecture) -> Any:
    return filled(build_attention(architecture, position=build_head_position(architecture).double()))


def some_stream(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(42))


def linear(x: Tensor, part: Any) -> Tensor:
    y = x @ part.weight.T
    return y if part.bias is None else y + part.bias


def heads(x_TD: Tensor, *, num_heads: int) -> list[Tensor]:
    return list(x_TD.chunk(num_heads, dim=-1))


def rms_normed(x: Tensor, part: Any) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * part.weight


def slow_attention(query_TK: Tensor, key_TK: Tensor, value_TV: Tensor, *, scale: float, sees: Callable[..., bool]) -> Tensor:
    """What each query reads, one score at a time."""
    rows = []
    for i in range(len(query_TK)):
        seen = [j for j in range(len(key_TK)) if sees(i, j)]
        scores = torch.stack([query_TK[i] @ key_TK[j] * scale for j in seen])
        weights = (scores - scores.max()).exp()
        rows.append(sum(weight * value_TV[j] for weight, j in zip(weights / weights.sum(), seen, strict=True)))
    return torch.stack(rows)


def causal(i: int, j: int) -> bool:
    return j <= i


@pytest.mark.parametrize("kind", SCORED, ids=str)
@pytest.mark.parametrize("position", ["rotary", "alibi", "none"])
def test_explicit_scores_give_what_the_fused_kernel_gives(declare: Declare, kind: dict[str, Any], position: str) -> None:
    x_BTD = some_stream(2, 12, 16)
    fused, explicit = (
        attention(declare(attention={**kind, "computation": computation}, position={"kind": position}))
        for computation in ("fused", "explicit")
    )
    assert torch.allclose(fused(x_BTD), explicit(x_BTD), atol=1e-10)


def test_explicit_and_fused_gradients_agree(declare: Declare) -> None:
    x_BTD = some_stream(2, 12, 16)
    fused, explicit = (attention(declare(attention={"kind": "multi_head", "computation": c})) for c in ("fused", "explicit"))
    gradients = [torch.autograd.grad(part(x_BTD).square().sum(), list(part.parameters())) for part in (fused, explicit)]
    for one, other in zip(*gradients, strict=True):
        assert torch.allclose(one, other, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(("scale", "factor"), [("inverse_sqrt", 0.5), ("none", 1.0), (0.3, 0.3)])
@pytest.mark.parametrize("computation", ["fused", "explicit"])
def test_scores_are_scaled_as_declared(declare: Declare, scale: object, factor: float, computation: str) -> None:
    part = attention(declare(attention={"kind": "multi_head", "scale": scale, "computation": computation}))
    x_TD = some_stream(6, 16)
    projected = [heads(linear(x_TD, getattr(part, name)), num_heads=4) for name in ("query", "key", "value")]
    read = [slow_attention(q, k, v, scale=factor, sees=causal) for q, k, v in zip(*projected, strict=True)]
    assert torch.allclose(part(x_TD[None])[0], linear(torch.cat(read, -1), part.output), atol=1e-10)


def test_an_rms_qk_norm_normalises_each_head_of_queries_and_keys(declare: Declare) -> None:
    part = attention(declare(attention={"kind": "multi_head", "qk_norm": "rms"}))
    x_TD = some_stream(6, 16)
    read = []
    for q, k, v in zip(
        *(heads(linear(x_TD, getattr(part, n)), num_heads=4) for n in ("query", "key", "value")), strict=True
    ):
        q, k = rms_normed(q, part.query_norm), rms_normed(k, part.key_norm)
        read.append(slow_attention(q, k, v, scale=0.5, sees=causal))
    assert torch.allclose(part(x_TD[None])[0], linear(torch.cat(read, -1), part.output), atol=1e-10)


def test_a_layer_qk_norm_centres_as_well_and_has_no_bias(declare: Declare) -> None:
    part = attention(declare(attention={"kind": "single_head", "qk_norm": "layer"}))
    x_TD = some_stream(6, 16)
    query, key, value = (linear(x_TD, getattr(part, name)) for name in ("query", "key", "value"))
    query, key = (
        (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, correction=0) + 1e-6).sqrt() * norm.weight
        for x, norm in ((query, part.query_norm), (key, part.key_norm))
    )
    read = slow_attention(query, key, value, scale=0.25, sees=causal)
    assert torch.allclose(part(x_TD[None])[0], linear(read, part.output), atol=1e-10)
    assert "query_norm.bias" not in part.state_dict()


def test_shared_qkv_uses_one_projection_three_times(declare: Declare) -> None:
    part = attention(declare(attention={"kind": "shared_qkv"}))
    x_TD = some_stream(6, 16)
    read = [slow_attention(p, p, p, scale=0.5, sees=causal) for p in heads(linear(x_TD, part.shared), num_heads=4)]
    assert torch.allclose(part(x_TD[None])[0], linear(torch.cat(read, -1), part.output), atol=1e-10)
    assert {name.split(".")[0] for name in part.state_dict()} == {"shared", "output"}


@pytest.mark.parametrize("window", [2, 3, 4, 5, 7, 12, 20])
@pytest.mark.parametrize("length", [1, 9, 13])
def test_a_window_is_full_attention_with_older_keys_masked(declare: Declare, window: int, length: int) -> None:
    part = attention(declare(attention={"kind": "window", "window": window}))
    x_TD = some_stream(length, 16)
    read = [
        slow_attention(q, k, v, scale=0.5, sees=lambda i, j: i - window < j <= i)
        for q, k, v in zip(
            *(heads(linear(x_TD, getattr(part, n)), num_heads=4) for n in ("query", "key", "value")), strict=True
        )
    ]
    assert torch.allclose(part(x_TD[None])[0], linear(torch.cat(read, -1), part.output), atol=1e-10)


def test_a_window_with_alibi_is_masked_full_attention_with_alibi(declare: Declare) -> None:
    alibi = {"kind": "alibi"}
    window = attention(declare(attention={"kind": "window", "window": 3}, position=alibi))
    part = attention(declare(attention={"kind": "multi_head"}, position=alibi))
    x_TD = some_stream(11, 16)
    read = []
    for head, (q, k, v) in enumerate(
        zip(*(heads(linear(x_TD, getattr(part, n)), num_heads=4) for n in ("query", "key", "value")), strict=True)
    ):
        slope = 2.0 ** (-2 * (head + 1))
        scores = q @ k.T / 2 - slope * (torch.arange(11)[:, None] - torch.arange(11))
        hidden = torch.ones(11, 11, dtype=torch.bool).tril() & ~torch.ones(11, 11, dtype=torch.bool).tril(-3)
        read.append(scores.masked_fill(~hidden, -math.inf).softmax(-1) @ v)
    assert torch.allclose(window(x_TD[None])[0], linear(torch.cat(read, -1), part.output), atol=1e-10)


@pytest.mark.parametrize("q_rank", [None, 5])
@pytest.mark.parametrize("position", ["rotary", "learned"])
def test_latent_attention_is_its_direct_expansion(declare: Declare, q_rank: int | None, position: str) -> None:
    """DeepSeek-AI 2024, equations 37 - 47, for one head after another."""
    architecture = declare(attention={**LATENT, "q_rank": q_rank}, position={"kind": position})
    part, turn = attention(architecture), build_head_position(architecture).double()
    x_TD = some_stream(6, 16)
    if q_rank is None:
        query_TE = linear(x_TD, part.query)
    else:
        query_TE = linear(rms_normed(linear(x_TD, part.query.reduce), part.query.norm), part.query.expand)
    down = linear(x_TD, part.kv_down)
    latent, rope_key = rms_normed(down[:, :6], part.kv_norm), turn(down[None, None, :, 6:])[0, 0]
    read = []
    for head in range(4):
        query = query_TE[:, head * 7 : (head + 1) * 7]
        query = torch.cat((query[:, :3], turn(query[None, None, :, 3:])[0, 0]), -1)
        up = latent @ part.kv_up.weight[head * 8 : (head + 1) * 8].T
        read.append(slow_attention(query, torch.cat((up[:, :3], rope_key), -1), up[:, 3:], scale=7**-0.5, sees=causal))
    assert torch.allclose(part(x_TD[None])[0], linear(torch.cat(read, -1), part.output), atol=1e-10)


def elu_plus_1(x: Tensor) -> Tensor:
    return nn.functional.elu(x) + 1


@pytest.mark.parametrize("length", [1, 5, 64, 150])  # chunks are of 64 tokens
@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("position", ["none", "rotary"])
def test_linear_attention_is_its_quadratic_form(declare: Declare, length: int, is_causal: bool, position: str) -> None:
    """Katharopoulos et al. 2020, equation 8; with rotary positions Su et al. 2021, equation 19."""
    architecture = declare(attention={"kind": "linear", "causal": is_causal}, position={"kind": position})
    part, turn = attention(architecture), build_head_position(architecture).double()
    x_TD = some_stream(length, 16)
    read = []
    for q, k, v in zip(
        *(heads(linear(x_TD, getattr(part, n)), num_heads=4) for n in ("query", "key", "value")), strict=True
    ):
        q, k = elu_plus_1(q), elu_plus_1(k)
        above, below = turn(q[None, None])[0, 0] @ turn(k[None, None])[0, 0].T, q @ k.T
        if is_causal:
            above, below = above.tril(), below.tril()
        read.append(above @ v / below.sum(-1, keepdim=True))
    assert torch.allclose(part(x_TD[None])[0], linear(torch.cat(read, -1), part.output), rtol=1e-8, atol=1e-8)


def test_linear_attention_survives_keys_far_below_zero(declare: Declare) -> None:
    part = build_attention(declare(attention={"kind": "linear"}), position=HeadPosition())
    assert part is not None
    filled(part).float()
    with torch.no_grad():
        part.get_parameter("key.weight").zero_()
        part.get_parameter("key.bias").fill_(-30.0)  # elu(-30) + 1 is 0 in float32
    assert part(some_stream(1, 6, 16).float()).isfinite().all()


def test_dropout_of_explicit_weights_acts_in_training_only(declare: Declare) -> None:
    architecture = declare(attention={"kind": "multi_head", "computation": "explicit"}, dropout=0.5)
    part, x_BTD = attention(architecture), some_stream(1, 12, 16)
    assert torch.equal(part(x_BTD), part(x_BTD))
    part.train()
    assert not torch.equal(part(x_BTD), part(x_BTD))


@pytest.mark.parametrize(
    ("changes", "path", "reason"),
    [
        ({"attention": {"kind": "window", "window": 2, "kv_heads": 3}}, "attention.kv_heads", "3 key/value heads do not"),
        ({"attention": {"kind": "shared_qkv"}, "heads": 5}, "heads", "5 heads do not divide width 16"),
        ({"attention": {"kind": "linear"}, "heads": 5}, "heads", "5 heads do not divide width 16"),
        (
            {"attention": {**LATENT, "rope_width": 3}, "position": {"kind": "rotary"}},
            "attention.rope_width",
            "rope_width 3 must be even",
        ),
        ({"attention": {"kind": "linear"}, "position": {"kind": "alibi"}}, "position.kind", "attention is linear"),
        ({"attention": {"kind": "none"}, "position": {"kind": "alibi"}}, "position.kind", "attention is none"),
    ],
)
def test_what_cannot_stand_together_is_refused(declare: Declare, changes: dict[str, Any], path: str, reason: str) -> None:
    with pytest.raises(ValidationError) as refused:
        declare(**changes)
    assert {".".join(map(str, error["loc"])): error["msg"] for error in refused.value.errors()}.keys() == {path}
    assert reason in str(refused.value)


def test_latent_heads_need_not_divide_the_width(declare: Declare) -> None:
    part = attention(declare(attention=LATENT, heads=3))
    assert part(some_stream(2, 6, 16)).shape == (2, 6, 16)
