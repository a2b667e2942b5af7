"""Runs of other objectives than the next token, and what their exams measure."""

from __future__ import annotations

import json
import math
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from knockout.corpus.reading import open_split
from knockout.model import Network, build
from knockout.training import evaluation
from knockout.training.evaluation import Exam, evaluate
from knockout.training.metrics import read_metrics
from knockout.training.spec import RESULT, WEIGHTS

MASKED: dict[str, Any] = {
    "objective": {"kind": "masked", "rate": 0.25},
    "skeleton": {"kind": "encoder"},
    "attention": {"causal": False},
}
COST = ("tokens_per_second", "peak_memory_bytes")
BALANCED: dict[str, Any] = {
    "ffn": {"kind": "moe", "experts": 4, "top_k": 2, "shared": 1, "hidden": 8, "balance": {"kind": "bias", "speed": 0.01}}
}
PREFIX: dict[str, Any] = {"objective": {"kind": "prefix"}}


def came_to(folder: Path) -> dict[str, Any]:
    """Metrics of a sealed run, its final weights and buffers, and the rows of its curves without their times."""
    metrics = {k: v for k, v in json.loads((folder / RESULT).read_text())["metrics"].items() if k not in COST}
    state = torch.load(folder / WEIGHTS, weights_only=True)["network"]
    rows = read_metrics(folder).drop_columns(["time"]).to_pylist()
    curves = {(row["metric"], row["step"]): row["value"] for row in rows if row["metric"] not in COST}
    return {"metrics": metrics, "state": {name: x.numpy().tobytes() for name, x in state.items()}, "curves": curves}


def test_a_killed_run_of_masked_tokens_and_balanced_experts_equals_an_uninterrupted_one(laboratory, until, tmp_path):
    whole, killed = (laboratory.declare(tmp_path / place, **MASKED, **BALANCED) for place in ("whole", "killed"))
    assert laboratory.train(whole) == 0
    child = laboratory.launch(killed, checkpoint_seconds=0.0)
    until(lambda: sorted((killed.folder / "checkpoints").glob("00000000[3-9]*.pt")) or child.ended.is_set())
    os.kill(child.pid, signal.SIGKILL)
    until(child.ended.is_set)
    assert laboratory.train(killed) == 0
    expected, found = came_to(whole.folder), came_to(killed.folder)
    assert found == expected
    bias_E = np.frombuffer(found["state"]["blocks.0.ffn.balance.choice_bias"], np.float32)
    assert np.abs(bias_E).max() > 0.0
    entropies = [value for (metric, _), value in found["curves"].items() if metric == "routing_entropy/block.01"]
    loads = [value for (metric, _), value in found["curves"].items() if metric == "expert_load_max/block.01"]
    assert len(entropies) == len(loads) == 4
    assert all(0 < entropy <= math.log(4) + 1e-6 for entropy in entropies)
    assert all(1.0 <= load <= 2.0 for load in loads), "two of four experts are chosen: one gets half at most"
    ends = [
        (found["curves"]["routing_entropy/block.00", 100] + entropies[-1]) / 2,
        max(loads[-1], found["curves"]["expert_load_max/block.00", 100]),
    ]
    assert [found["metrics"][name] for name in ("routing_entropy", "expert_load_max")] == pytest.approx(ends)


TWO_STACKS: dict[str, Any] = {**PREFIX, "skeleton": {"kind": "encoder_decoder", "encoder_depth": 1}}
HALF: dict[str, Any] = {"objective": {"kind": "prefix", "share": 0.5}}


@pytest.mark.parametrize("changes", [PREFIX, HALF, TWO_STACKS], ids=["drawn", "half", "two-stacks"])
def test_a_prefix_run_learns_and_is_measured_on_the_next_token_too(laboratory, tmp_path, changes):
    run = laboratory.declare(tmp_path, **changes)
    assert laboratory.train(run) == 0
    metrics = came_to(run.folder)["metrics"]
    assert set(metrics) >= {"val_loss", "generation_loss", "bits_per_byte", "train_loss"}
    assert all(0 < metrics[name] < math.log(32) for name in ("val_loss", "generation_loss"))


def networked(laboratory, place: Path, **changes: Any) -> Network:
    return build(laboratory.declare(place, **changes).architecture, seed=3).eval()


@pytest.mark.parametrize("changes", [MASKED, PREFIX], ids=["masked", "prefix"])
@pytest.mark.parametrize("at_once", [1, 5, 1000])
def test_an_exam_is_the_same_each_time_and_for_every_batch_size(laboratory, tmp_path, monkeypatch, changes, at_once):
    network = networked(laboratory, tmp_path, **changes)
    split = open_split(laboratory.corpus.folder, split="validation")
    usual = evaluate(network, exam=Exam.of(split, context=16, device="cpu"), causal=False)
    monkeypatch.setattr(evaluation, "WINDOWS_AT_ONCE", at_once)
    again = evaluate(network, exam=Exam.of(split, context=16, device="cpu"), causal=False)
    assert again == pytest.approx(usual, rel=1e-6)


def test_the_masked_exam_is_the_loss_of_the_hidden_tokens_of_its_windows(laboratory, tmp_path):
    network = networked(laboratory, tmp_path, **MASKED)
    split = open_split(laboratory.corpus.folder, split="validation")
    exam = Exam.of(split, context=16, device="cpu")
    (question,) = exam.questions(network)
    assert question.counted_BT is not None
    assert question.counted_BT.sum(1).tolist() == [4] * 16
    nats = [
        -network(question.shown_BT[row : row + 1]).logits_BTV[0, place].double().log_softmax(-1)[answer].item()
        for row, place in question.counted_BT.nonzero().tolist()
        for answer in [int(question.answers_BT[row, place])]
    ]
    found = evaluate(network, exam=exam, causal=False)
    assert found["val_loss"] == pytest.approx(math.fsum(nats) / 64, rel=1e-6)
    num_bytes = int((question.answers_N != split.manifest.end_of_text).sum())
    assert found["bits_per_byte"] == pytest.approx(math.fsum(nats) / math.log(2) / num_bytes, rel=1e-6)


def test_generation_loss_of_a_masked_network_puts_a_mask_behind_each_prefix(laboratory, tmp_path):
    network = networked(laboratory, tmp_path, **MASKED)
    exam = Exam.of(open_split(laboratory.corpus.folder, split="validation"), context=16, device="cpu")
    nats = []
    for window in exam.few_BW.tolist():
        for end in range(1, 17):
            kept = window[max(0, end - 15) : end]
            logits_V = network(torch.tensor([[*kept, 32]])).logits_BTV[0, -1].double()
            nats.append(-logits_V.log_softmax(-1)[window[end]].item())
    found = evaluate(network, exam=exam, causal=False)
    assert found["generation_loss"] == pytest.approx(math.fsum(nats) / len(nats), rel=1e-6)


def test_a_run_under_a_hard_margin_reports_nats(laboratory, tmp_path):
    run = laboratory.declare(tmp_path, loss={"kind": "hard_margin", "margin": 1.0})
    assert laboratory.train(run) == 0
    curves = came_to(run.folder)["curves"]
    first, last = curves["train_loss", 1], curves["train_loss", 100]
    assert first == pytest.approx(math.log(32), abs=0.1)
    assert last < first
