"""Runs whose documents are read each by itself: training, exam and what they write, against documents run alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from knockout.corpus.batches import batch
from knockout.corpus.reading import open_split
from knockout.declare.recipe import DocumentPacking
from knockout.declare.sampling import GreedySampling
from knockout.model import Network, build
from knockout.training.calibrate import _evaluation_seconds
from knockout.training.continuation import continue_text
from knockout.training.evaluation import Exam, evaluate
from knockout.training.seeds import derived
from knockout.training.spec import METRICS, RESULT, read_spec
from knockout.training.trained import load_network

END = 16
"""The corpus' end-of-text: its chain has the symbols 0 to 15."""
DOCUMENTS = {"packing": {"kind": "documents"}, "dropout": 0.0}
UNMASKED = {"attention": {"causal": False}, "init": {"std": 0.3}}


@torch.no_grad()
def losses_alone(network: Network, window_W: Tensor) -> list[float]:
    """Nats of each token of a window after the first, its document run by itself."""
    losses, begin, tokens = [], 0, window_W.tolist()
    for end in range(1, len(tokens)):
        if tokens[end - 1] == END or end == len(tokens) - 1:
            logits_LV = network(window_W[begin:end].unsqueeze(0)).logits_BTV[0]
            losses += F.cross_entropy(logits_LV, window_W[begin + 1 : end + 1], reduction="none").tolist()
            begin = end
    return losses


def mean_alone(network: Network, windows_BW: Tensor) -> float:
    losses = [loss for window_W in windows_BW for loss in losses_alone(network.eval(), window_W)]
    return sum(losses) / len(losses)


@pytest.fixture(scope="module")
def run(laboratory: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    found = laboratory.declare(tmp_path_factory.mktemp("packing"), **DOCUMENTS)
    assert laboratory.train(found) == 0
    return found


def exam_of(laboratory: Any, *, context: int = 16) -> Exam:
    split = open_split(laboratory.corpus.folder, split="validation")
    return Exam.of(split, context=context, device="cpu", packing=DocumentPacking())


def test_the_recipe_of_a_run_says_how_it_was_packed(laboratory: Any, run: Any, tmp_path: Path) -> None:
    usual = laboratory.declare(tmp_path, dropout=0.0)
    assert run.meaning["recipe"] == {**usual.meaning["recipe"], "packing": {"kind": "documents"}}
    assert run.identity != usual.identity
    assert isinstance(read_spec(run.folder).recipe.packing, DocumentPacking)


@pytest.mark.parametrize("context", [16, 12])
def test_the_exam_asks_for_every_token_from_its_own_document(laboratory: Any, tmp_path: Path, context: int) -> None:
    network = build(laboratory.declare(tmp_path, context=context, init={"std": 0.3}, **DOCUMENTS).architecture, seed=3)
    exam = exam_of(laboratory, context=context)
    found = evaluate(network, exam=exam, causal=True)
    losses = [loss for rows in exam.windows_BW for window_W in rows for loss in losses_alone(network.eval(), window_W)]
    assert len(losses) == laboratory.corpus.manifest.evaluation.tokens
    assert found["val_loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-6)
    assert found["generation_loss"] == pytest.approx(mean_alone(network, exam.few_BW), rel=1e-6)
    whole = evaluate(network, exam=replace(exam, end_of_text=None), causal=True)
    assert abs(whole["val_loss"] - found["val_loss"]) > 1e-3


def test_generation_loss_of_a_network_without_a_mask_is_of_prefixes_of_documents(laboratory: Any, tmp_path: Path) -> None:
    blind = build(laboratory.declare(tmp_path, **UNMASKED, **DOCUMENTS).architecture, seed=3).eval()
    exam = exam_of(laboratory)
    losses = []
    for window_W in exam.few_BW:
        for end in range(1, len(window_W)):
            begin = max([place + 1 for place in range(end - 1) if window_W[place] == END], default=0)
            logits_V = blind(window_W[begin:end].unsqueeze(0)).logits_BTV[0, -1]
            losses.append(F.cross_entropy(logits_V, window_W[end]).item())
    found = evaluate(blind, exam=exam, causal=False)
    assert found["generation_loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    assert found["val_loss"] == pytest.approx(mean_alone(blind, exam.windows_BW[0]), rel=1e-5)


def test_a_step_of_training_reads_documents_alone(laboratory: Any, run: Any) -> None:
    """The first step's loss, from the first weights and the step's windows."""
    spec = read_spec(run.folder)
    network = build(spec.architecture, seed=spec.seed)
    split = open_split(laboratory.corpus.folder, split="train")
    rows_BW = torch.from_numpy(batch(split, seed=derived(spec.seed, "data"), step=0, batch=4, context=16))
    series = pq.read_table(run.folder / METRICS).to_pylist()
    (first,) = (row["value"] for row in series if row["metric"] == "train_loss" and row["step"] == 1)
    assert first == pytest.approx(mean_alone(network, rows_BW), rel=1e-6)


def test_the_result_is_that_of_the_exam_under_the_same_rule(laboratory: Any, run: Any) -> None:
    metrics = json.loads((run.folder / RESULT).read_text())["metrics"]
    network, exam = load_network(run.folder), exam_of(laboratory)
    assert metrics["val_loss"] == pytest.approx(mean_alone(network, exam.windows_BW[0]), rel=1e-6)
    assert metrics["generation_loss"] == pytest.approx(mean_alone(network, exam.few_BW), rel=1e-6)
    assert metrics["val_loss"] < laboratory.corpus.manifest.floors.unigram


def test_a_text_begins_from_its_first_token_alone(laboratory: Any, run: Any) -> None:
    """The empty prompt is the end of another text, which what follows the first token does not read."""
    asked = {"num_tokens": 3, "sampling": GreedySampling(), "seed": 0}
    written = continue_text(run.folder, corpora=laboratory.corpus.folder.parent, prompt="", **asked).tokens
    network, read = load_network(run.folder), [END]
    for place, token in enumerate(written):
        assert token == int(network(torch.tensor([read])).logits_BTV[0, -1].argmax())
        read = list(written[: place + 1])


def test_a_calibration_times_windows_with_borders(laboratory: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, seen = read_spec(run.folder), []
    usual = Network.forward

    def noting(network: Network, tokens_BT: Tensor, **named: Any) -> Any:
        seen.append(named.get("documents") is not None)
        return usual(network, tokens_BT, **named)

    monkeypatch.setattr(Network, "forward", noting)
    _evaluation_seconds(build(spec.architecture, seed=0).eval(), spec=spec, clock=lambda: 0.0, device="cpu")
    assert len(seen) > 1
    assert all(seen)
