"""What a run records beside its losses: routing, speed, and its curve of evaluations."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from torch import Tensor

from knockout.corpus.reading import open_split
from knockout.model import Network, build
from knockout.model.mixture import MixtureOfExperts
from knockout.training.evaluation import Exam, evaluate
from knockout.training.metrics import SCHEMA, evaluations
from knockout.training.result import final_metrics
from knockout.training.routing import counted_routing
from knockout.training.spec import RESULT
from knockout.training.timing import Stopwatch

EXPERTS = 4
MOE: dict[str, Any] = {"ffn": {"kind": "moe", "experts": EXPERTS, "top_k": 1, "hidden": 8}, "dropout": 0.0}


@pytest.fixture
def declared(laboratory, tmp_path: Path) -> Callable[..., Network]:
    return lambda **changes: build(laboratory.declare(tmp_path / "network", **{**MOE, **changes}).architecture, seed=3)


@pytest.fixture
def exam(laboratory) -> Exam:
    return Exam.of(open_split(laboratory.corpus.folder, split="validation"), context=16, device="cpu")


def plant(network: Network, choose: Callable[[int], Tensor]) -> None:
    """Have the router of each block score every token by its place among all tokens of a forward pass."""
    for block in network.blocks:
        ffn = block.ffn
        assert isinstance(ffn, MixtureOfExperts)
        ffn.router.scores = lambda x_ND: choose(x_ND.shape[0])  # type: ignore[method-assign]


def test_a_router_that_sends_all_to_one_expert_has_no_entropy_and_all_of_the_load(declared, exam):
    network = declared()
    plant(network, lambda num: torch.eye(EXPERTS)[torch.full((num,), 2)])
    found = evaluate(network, exam=exam, causal=True)
    for layer in ("", "/block.00", "/block.01"):
        assert found[f"routing_entropy{layer}"] == 0.0
        assert found[f"expert_load_max{layer}"] == EXPERTS


def test_a_router_that_sends_as_many_to_each_expert_has_the_most_entropy_and_an_even_load(declared, exam):
    network = declared()
    plant(network, lambda num: torch.eye(EXPERTS)[torch.arange(num) % EXPERTS])
    found = evaluate(network, exam=exam, causal=True)
    for layer in ("", "/block.00", "/block.01"):
        assert found[f"routing_entropy{layer}"] == pytest.approx(math.log(EXPERTS), rel=1e-6)
        assert found[f"expert_load_max{layer}"] == pytest.approx(1.0)


def test_routing_is_counted_over_all_windows_of_the_exam_and_by_layer(declared, exam, monkeypatch):
    """Against a count of each window's choices, by what the router and its input say."""
    monkeypatch.setattr("knockout.training.evaluation.WINDOWS_AT_ONCE", 5)
    network = declared(attention={"causal": False}).eval()
    chosen: dict[int, Counter[int]] = {}
    for window in torch.cat(exam.windows_BW).tolist():
        x_BTD = network.embed(torch.tensor([window[:-1]]))
        for index, block in enumerate(network.blocks):
            stream: Any = block
            read_BTD = x_BTD + stream.attention(stream.attention_norm(x_BTD))
            logits_NE = (stream.ffn_norm(read_BTD) @ stream.ffn.router.weight.T).flatten(0, 1)
            chosen.setdefault(index, Counter()).update(logits_NE.argmax(1).tolist())
            x_BTD = block(x_BTD)
    found = evaluate(network, exam=exam, causal=False)
    assert [sum(counts.values()) for counts in chosen.values()] == [256, 256]
    shares = [[count / 256 for count in counts.values()] for counts in chosen.values()]
    entropies = [-math.fsum(p * math.log(p) for p in layer) for layer in shares]
    for index in range(2):
        assert found[f"routing_entropy/block.{index:02d}"] == pytest.approx(entropies[index], rel=1e-5)
        assert found[f"expert_load_max/block.{index:02d}"] == pytest.approx(EXPERTS * max(shares[index]), rel=1e-6)
    assert found["routing_entropy"] == pytest.approx(math.fsum(entropies) / 2, rel=1e-5)
    assert found["expert_load_max"] == pytest.approx(EXPERTS * max(map(max, shares)), rel=1e-6)


def test_counting_leaves_no_hook_and_a_dense_network_has_no_routing(declared, exam):
    network = declared()
    with pytest.raises(ZeroDivisionError), counted_routing(network):
        raise ZeroDivisionError
    assert not any(module._forward_hooks for module in network.modules())
    assert not [name for name in evaluate(declared(ffn={"kind": "gelu"}), exam=exam, causal=True) if "expert" in name]


def test_the_layers_of_an_encoder_are_counted_under_its_name(declared, exam):
    network = declared(objective={"kind": "prefix"}, skeleton={"kind": "encoder_decoder", "encoder_depth": 1})
    found = evaluate(network, exam=exam, causal=False)
    layers = {name.partition("/")[2] for name in found if name.startswith("routing_entropy/")}
    assert layers == {"block.00", "block.01", "encoder.00"}


def test_tokens_per_second_of_a_run_are_all_tokens_over_all_seconds_of_training():
    rows = [
        (10, 1000, "tokens_per_second", 100.0),
        (20, 2000, "tokens_per_second", 50.0),
        (40, 4000, "tokens_per_second", 200.0),
    ]
    rows += [(step, tokens, "peak_memory_bytes", 5.0 * tokens) for step, tokens, _, _ in rows]
    rows += [(40, 4000, "train_loss", 2.5)]
    columns = [*map(list, zip(*rows, strict=True)), [0.0] * len(rows)]
    found = final_metrics(pa.table(columns, schema=SCHEMA), evaluation={"val_loss": 3.0, "routing_entropy/block.00": 1.0})
    assert found == {
        "val_loss": 3.0,
        "train_loss": 2.5,
        "peak_memory_bytes": 20_000.0,
        "tokens_per_second": pytest.approx(4000 / (10 + 20 + 10)),
    }


def test_a_stopwatch_keeps_start_steps_and_evaluations_apart():
    now = [5.0]
    watch = Stopwatch(lambda: now[0])
    now[0] = 7.0
    watch.start_steps()
    for _ in range(2):
        now[0] += 10.0
        began = watch.clock()
        now[0] += 3.0
        watch.add_evaluation(since=began)
    timing = watch.timing(num_steps=40)
    assert timing is not None
    assert (timing.start_seconds, timing.step_seconds, timing.evaluation_seconds) == (2.0, 0.5, 3.0)
    assert Stopwatch(lambda: 0.0).timing(num_steps=0) is None


def test_the_evaluations_of_a_run_are_given_by_tokens(laboratory, tmp_path: Path):
    run = laboratory.declare(tmp_path)
    assert laboratory.train(run) == 0
    curve = evaluations(run.folder, metric="val_loss")
    assert [tokens for tokens, _ in curve] == [1600, 3200, 4800, 6400]
    result = json.loads((run.folder / RESULT).read_text())
    assert curve[-1][1] == result["metrics"]["val_loss"]
    assert evaluations(run.folder, metric="routing_entropy") == ()
    timing = result["timing"]
    assert all(0 < timing[name] < 20 for name in ("start_seconds", "step_seconds", "evaluation_seconds"))
    assert 100 * timing["step_seconds"] < result["seconds"]
