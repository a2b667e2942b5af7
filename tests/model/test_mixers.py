"""Recurrent and state-space mixers against their recurrences, one token after the other, written here a second time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from knockout.declare.architecture import Architecture
from knockout.model import build
from knockout.model.attention import build_attention
from knockout.model.head_position import HeadPosition
from knockout.model.position import build_head_position
from knockout.model.retention import Retention, decays_H
from knockout.model.scan import linear_recurrence
from knockout.model.state_space import SelectiveSsm, selective_scan

Declare = Callable[..., Architecture]
MIXERS = ["rnn", "lstm", "gru", "selective_ssm", "retention"]


def filled(part: Any) -> Any:
    """The part in float64 with every parameter drawn at random."""
    generator = torch.Generator().manual_seed(41)
    for parameter in part.parameters():
        nn.init.normal_(parameter, std=0.5, generator=generator)
    return part.double()


def some_stream(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(42))


def mixer(declare: Declare, *, position: HeadPosition | None = None, **attention: Any) -> Any:
    return filled(build_attention(declare(attention=attention), position=position or HeadPosition()))


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 33])
def test_a_scan_is_the_recurrence_step_by_step_and_so_are_its_gradients(length: int) -> None:
    decay_BT, added_BT = (some_stream(2, length, 3).sigmoid().requires_grad_(), some_stream(2, length, 3).requires_grad_())
    start_B = some_stream(2, 3).requires_grad_()
    states, state_B = [], start_B
    for step in range(length):
        state_B = decay_BT[:, step] * state_B + added_BT[:, step]
        states.append(state_B)
    slow_BT, fast_BT = torch.stack(states, 1), linear_recurrence(decay_BT, added_BT, start_B=start_B)
    assert torch.allclose(fast_BT, slow_BT, atol=1e-12)
    weights_BT = some_stream(2, length, 3)
    slow = torch.autograd.grad((slow_BT * weights_BT).sum(), (decay_BT, added_BT, start_B))
    fast = torch.autograd.grad((fast_BT * weights_BT).sum(), (decay_BT, added_BT, start_B))
    assert all(torch.allclose(one, other, atol=1e-12) for one, other in zip(fast, slow, strict=True))


def test_a_scan_of_strong_decays_neither_overflows_nor_forgets_the_newest() -> None:
    decay_BT = torch.full((1, 500, 1), 1e-30)
    added_BT = torch.ones(1, 500, 1)
    assert torch.equal(linear_recurrence(decay_BT, added_BT, start_B=torch.ones(1, 1)), added_BT)


CELLS: dict[str, Any] = {"rnn": nn.RNNCell, "lstm": nn.LSTMCell, "gru": nn.GRUCell}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("hidden", [None, 7])
@pytest.mark.parametrize("kind", CELLS)
def test_a_cell_is_torchs_own_one_token_after_the_other(declare: Declare, kind: str, hidden: int | None, bias: bool) -> None:
    architecture = declare(attention={"kind": kind, "hidden": hidden}, bias=bias)
    part = filled(build_attention(architecture, position=HeadPosition()))
    cell = CELLS[kind](16, hidden or 16, bias=bias).double()
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in part.cell.state_dict().items()})
    x_BTD, state, states = some_stream(2, 9, 16), None, []
    for x_BD in x_BTD.unbind(1):
        state = cell(x_BD, state)
        states.append(state[0] if kind == "lstm" else state)
    assert torch.allclose(part(x_BTD), part.output(torch.stack(states, 1)), atol=1e-12)


def test_an_rnn_is_elmans_formula(declare: Declare) -> None:
    part, x_TD = mixer(declare, kind="rnn"), some_stream(6, 16)
    weights = part.cell.state_dict()
    state_H, states = torch.zeros(16, dtype=torch.float64), []
    for x_D in x_TD:
        into_H = weights["weight_ih_l0"] @ x_D + weights["bias_ih_l0"]
        state_H = torch.tanh(into_H + weights["weight_hh_l0"] @ state_H + weights["bias_hh_l0"])
        states.append(state_H)
    assert torch.allclose(part(x_TD[None])[0], part.output(torch.stack(states)), atol=1e-12)


def slow_state_space(part: SelectiveSsm, x_TD: Tensor, *, num_states: int, rank: int) -> Tensor:
    """Gu & Dao 2023, algorithm 2 and equations 2a and 4, one token and one unit at a time."""
    inner_TE, gate_TE = part.input(x_TD).chunk(2, -1)
    num_tokens, num_units = inner_TE.shape
    kernel_EK, bias_E = part.convolution.weight[:, 0], part.convolution.bias
    size = kernel_EK.shape[1]
    state_EN = torch.zeros(num_units, num_states, dtype=torch.float64)
    rows = []
    for t in range(num_tokens):
        seen_E = torch.zeros(num_units, dtype=torch.float64) if bias_E is None else bias_E.clone()
        for back in range(size):
            if t - back >= 0:
                seen_E = seen_E + kernel_EK[:, size - 1 - back] * inner_TE[t - back]
        x_E = seen_E * torch.sigmoid(seen_E)
        chosen = part.selection.weight @ x_E
        rank_R, into_N, out_N = chosen[:rank], chosen[rank : rank + num_states], chosen[rank + num_states :]
        step_E = torch.log1p(torch.exp(part.step.weight @ rank_R + part.step.bias))
        y_E = torch.empty(num_units, dtype=torch.float64)
        for e in range(num_units):
            rate_N = -torch.exp(part.log_rate[e])
            state_EN[e] = torch.exp(step_E[e] * rate_N) * state_EN[e] + step_E[e] * into_N * x_E[e]
            y_E[e] = state_EN[e] @ out_N + part.skip[e] * x_E[e]
        rows.append(y_E * gate_TE[t] * torch.sigmoid(gate_TE[t]))
    return part.output(torch.stack(rows))


@pytest.mark.parametrize(
    ("settings", "rank"),
    [({}, 1), ({"expansion": 3, "state": 5, "convolution": 1, "step_rank": 4}, 4), ({"convolution": 6, "state": 1}, 1)],
    ids=["default", "wide", "long"],
)
def test_a_selective_state_space_is_its_algorithm(declare: Declare, settings: dict[str, int], rank: int) -> None:
    part, x_BTD = mixer(declare, kind="selective_ssm", **settings), some_stream(2, 11, 16)
    with torch.no_grad():
        expected = [slow_state_space(part, x_TD, num_states=settings.get("state", 16), rank=rank) for x_TD in x_BTD]
        assert torch.allclose(part(x_BTD), torch.stack(expected), atol=1e-10)


def test_no_length_of_chunk_changes_a_selective_scan_or_its_gradients() -> None:
    step_BTE, x_BTE = some_stream(2, 21, 4).exp(), some_stream(2, 21, 4)
    streams = [stream.requires_grad_() for stream in (step_BTE, x_BTE, some_stream(2, 21, 3), some_stream(2, 21, 3))]
    rate_EN, start_BEN = -some_stream(4, 3).exp(), some_stream(2, 4, 3)
    found = []
    for chunk in (1, 5, 21, 64):
        read_BTE, last_BEN = selective_scan(*streams, rate_EN=rate_EN, start_BEN=start_BEN, chunk=chunk)
        gradients = torch.autograd.grad(read_BTE.square().sum() + last_BEN.square().sum(), streams)
        found.append((read_BTE, last_BEN, *gradients))
    for other in found[1:]:
        assert all(torch.allclose(x, y, rtol=1e-9, atol=1e-9) for x, y in zip(found[0], other, strict=True))


def test_a_state_space_begins_with_its_papers_rates_and_step_sizes(declare: Declare) -> None:
    part = build(declare(width=256, heads=4, depth=1, attention={"kind": "selective_ssm"}), seed=0).blocks[0].attention
    assert isinstance(part, SelectiveSsm)
    assert torch.allclose(part.log_rate.exp(), torch.arange(1.0, 17.0).expand(512, 16))
    assert torch.equal(part.skip, torch.ones(512))
    step_E = F.softplus(part.step.bias)
    assert step_E.min() >= 0.001 * 0.999
    assert step_E.max() <= 0.1 * 1.001
    assert step_E.log().mean().item() == pytest.approx(math.log(0.01), abs=0.2)  # the middle of a log-uniform draw
    assert part.step.weight.abs().max() <= 256**-0.5 * 4  # rank 16
    assert part.step.in_features == 16


def slow_retention(part: Retention, x_TD: Tensor, *, position: HeadPosition, num_heads: int) -> Tensor:
    """Sun et al. 2023, equations 6 and 8, head by head: S_n = gamma S_(n-1) + K_n^T V_n, o_n = Q_n S_n."""
    query_TD, key_TD, value_TE, gate_TE = (getattr(part, name)(x_TD) for name in ("query", "key", "value", "gate"))
    key_width, value_width = query_TD.shape[1] // num_heads, value_TE.shape[1] // num_heads
    outputs = []
    for head in range(num_heads):
        gamma = 1 - 2 ** (-5 - head)
        keys, values = (slice(head * width, (head + 1) * width) for width in (key_width, value_width))
        query_TK = position(query_TD[None, None, :, keys])[0, 0]
        key_TK = position(key_TD[None, None, :, keys])[0, 0] / math.sqrt(key_width)
        state_KV = torch.zeros(key_width, value_width, dtype=torch.float64)
        rows = []
        for query_K, key_K, value_V in zip(query_TK, key_TK, value_TE[:, values], strict=True):
            state_KV = gamma * state_KV + torch.outer(key_K, value_V)
            row_V = query_K @ state_KV
            rows.append((row_V - row_V.mean()) / (row_V.var(correction=0) + 1e-5).sqrt())
        outputs.append(torch.stack(rows))
    return part.output(gate_TE * torch.sigmoid(gate_TE) * torch.cat(outputs, -1))


@pytest.mark.parametrize("value_expansion", [1, 2])
@pytest.mark.parametrize("position", ["none", "rotary"])
def test_retention_is_its_recurrence(declare: Declare, position: str, value_expansion: int) -> None:
    settings = {"kind": "retention", "value_expansion": value_expansion}
    turned = build_head_position(declare(attention=settings, position={"kind": position}))
    part, x_TD = mixer(declare, position=turned, **settings), some_stream(11, 16)
    with torch.no_grad():
        expected_TD = slow_retention(part, x_TD, position=turned, num_heads=4)
        for chunk in (1, 4, 11, 64):
            part.chunk = chunk
            assert torch.allclose(part(x_TD[None])[0], expected_TD, atol=1e-9), chunk


def test_retention_is_its_parallel_form_before_the_norm(declare: Declare) -> None:
    """Equation 5: (Q K^T * D) V with D_nm = gamma^(n - m) for n >= m; the norm alone stands between it and the output."""
    part, x_TD = mixer(declare, kind="retention"), some_stream(9, 16)
    distance_TT = torch.arange(9)[:, None] - torch.arange(9)
    heads = []
    for head, gamma in enumerate((31 / 32, 63 / 64, 127 / 128, 255 / 256)):
        own = slice(4 * head, 4 * head + 4)
        fade_TT = torch.where(distance_TT >= 0, gamma ** distance_TT.double(), 0.0)
        scores_TT = part.query(x_TD)[:, own] @ part.key(x_TD)[:, own].T / 2
        heads.append(F.layer_norm((scores_TT * fade_TT) @ part.value(x_TD)[:, own], (4,)))
    expected_TD = part.output(F.silu(part.gate(x_TD)) * torch.cat(heads, -1))
    assert torch.allclose(part(x_TD[None])[0], expected_TD, atol=1e-10)
    assert decays_H(4).tolist() == [31 / 32, 63 / 64, 127 / 128, 255 / 256]


@pytest.mark.parametrize("kind", MIXERS)
@pytest.mark.parametrize("cuts", [[12], [1] * 12, [5, 1, 1, 5], [3, 9]], ids=str)
def test_a_state_in_place_of_the_past_gives_the_same_logits(declare: Declare, kind: str, cuts: list[int]) -> None:
    architecture = declare(attention={"kind": kind}, init={"kind": "gpt2", "std": 0.3})
    network = build(architecture, seed=0, dtype=torch.float64)
    tokens_BT = torch.randint(11, (3, 12), generator=torch.Generator().manual_seed(1))
    cache = network.new_cache(3, capacity=12)
    before = cache.num_bytes
    with torch.no_grad():
        parts = [network(piece_BT, cache=cache).logits_BTV for piece_BT in tokens_BT.split(cuts, dim=1)]
        assert torch.allclose(torch.cat(parts, 1), network(tokens_BT).logits_BTV, atol=1e-10)
    assert cache.num_bytes == before


@pytest.mark.parametrize("kind", MIXERS)
def test_a_state_does_not_grow_with_the_capacity(declare: Declare, kind: str) -> None:
    network = build(declare(attention={"kind": kind}), seed=0)
    assert network.new_cache(2, capacity=10).num_bytes == network.new_cache(2, capacity=10_000).num_bytes


@pytest.mark.parametrize("kind", MIXERS)
def test_a_mixer_reaches_back_to_the_first_token(declare: Declare, kind: str) -> None:
    architecture = declare(depth=1, attention={"kind": kind}, ffn={"kind": "none"}, init={"kind": "gpt2", "std": 0.3})
    network = build(architecture, seed=0, dtype=torch.float64)
    tokens_BT = torch.tensor([[1] + [5] * 11, [2] + [5] * 11])
    logits_BTV = network(tokens_BT).logits_BTV
    assert (logits_BTV[0, -1] - logits_BTV[1, -1]).abs().max() > 1e-6


@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru"])
def test_a_cells_maps_of_its_state_begin_orthogonal_and_a_forget_gate_open(declare: Declare, kind: str) -> None:
    cell = build(declare(attention={"kind": kind}), seed=0).blocks[0].attention.cell  # type: ignore[union-attr]
    for map_HH in cell.weight_hh_l0.unflatten(0, (-1, 16)):
        assert torch.allclose(map_HH @ map_HH.T, torch.eye(16), atol=1e-5)
    gates = cell.bias_ih_l0.unflatten(0, (-1, 16)).mean(-1).tolist()
    assert gates == ([0, 1, 0, 0] if kind == "lstm" else [0] * len(gates))
    assert not cell.bias_hh_l0.any()


def test_mixers_refuse_positions_inside_heads_that_they_have_not(declare: Declare) -> None:
    for kind in ("rnn", "lstm", "gru", "selective_ssm"):
        with pytest.raises(ValueError, match=f"attention is {kind}"):
            declare(attention={"kind": kind}, position={"kind": "rotary"})
    with pytest.raises(ValueError, match="3 heads do not divide width 16"):
        declare(attention={"kind": "retention"}, heads=3)
    assert declare(attention={"kind": "lstm"}, heads=3).heads == 3
