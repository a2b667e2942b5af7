"""What a run measures and sees, against independent computations."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from knockout.corpus.reading import Split, open_split
from knockout.model import build
from knockout.training import evaluation
from knockout.training.data import StepBatches
from knockout.training.evaluation import Exam, evaluate
from knockout.training.probes import Probes
from knockout.training.ranks import Alone
from knockout.training.spec import read_spec


@pytest.fixture
def network(laboratory, tmp_path: Path) -> nn.Module:
    return build(laboratory.declare(tmp_path / "network").architecture, seed=3, device="cpu")


@pytest.fixture
def blind(laboratory, tmp_path: Path) -> nn.Module:
    """A network that sees the future."""
    changes = {"attention": {"causal": False}, "init": {"std": 0.3}}
    return build(laboratory.declare(tmp_path / "blind", **changes).architecture, seed=3, device="cpu")


@pytest.fixture
def validation(laboratory) -> Split:
    return open_split(laboratory.corpus.folder, split="validation")


def exam_of(split: Split, *, context: int = 16) -> Exam:
    return Exam.of(split, context=context, device="cpu")


def slow_loss(network: nn.Module, prefix: list[int], target: int) -> float:
    """Nats of one token, from float64 arithmetic of our own on the logits."""
    with torch.no_grad():
        logits = network(torch.tensor([prefix])).logits_BTV[0, -1].double().numpy()
    return float(math.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[target])


def windows(split: Split, *, context: int) -> list[list[int]]:
    """The exam's windows from the manifest alone: segments of consecutive tokens, cut from their starts."""
    exam = split.manifest.evaluation
    tokens = np.concatenate(split.shards).tolist()
    segments = [tokens[start : start + exam.segment_tokens + 1] for start in exam.starts]
    return [piece[at : at + context + 1] for piece in segments for at in range(0, exam.segment_tokens, context)]


@pytest.mark.parametrize("context", [16, 12])
def test_val_loss_is_the_mean_over_every_token_of_the_exam(network: nn.Module, validation: Split, context: int):
    network.eval()
    losses = [
        slow_loss(network, window[:end], window[end])
        for window in windows(validation, context=context)
        for end in range(1, len(window))
    ]
    assert len(losses) == validation.manifest.evaluation.tokens == 256
    found = evaluate(network, exam=exam_of(validation, context=context), causal=True)
    assert found["val_loss"] == pytest.approx(math.fsum(losses) / 256, rel=1e-6)
    bits = math.fsum(losses) / math.log(2) / validation.manifest.evaluation.bytes
    assert found["bits_per_byte"] == pytest.approx(bits, rel=1e-6)


@pytest.mark.parametrize("at_once", [1, 5, 1000])
def test_the_exam_does_not_depend_on_how_many_windows_are_run_at_once(
    network: nn.Module, validation: Split, monkeypatch: pytest.MonkeyPatch, at_once: int
):
    usual = evaluate(network, exam=exam_of(validation), causal=True)
    monkeypatch.setattr(evaluation, "WINDOWS_AT_ONCE", at_once)
    assert evaluate(network, exam=exam_of(validation), causal=True) == pytest.approx(usual, rel=1e-6)


def test_generation_loss_of_a_causal_model_is_the_same_prefix_by_prefix(network: nn.Module, validation: Split):
    exam = exam_of(validation)
    whole, alone = (evaluate(network, exam=exam, causal=causal)["generation_loss"] for causal in (True, False))
    assert alone == pytest.approx(whole, rel=1e-6)


def test_generation_loss_of_a_model_that_sees_the_future_shows_it_only_the_prefix(blind: nn.Module, validation: Split):
    blind.eval()
    chosen = windows(validation, context=16)  # 16 windows: all of them are generated
    losses = [slow_loss(blind, window[:end], window[end]) for window in chosen for end in range(1, 17)]
    found = evaluate(blind, exam=exam_of(validation), causal=False)
    assert found["generation_loss"] == pytest.approx(math.fsum(losses) / len(losses), rel=1e-6)
    assert abs(found["generation_loss"] - found["val_loss"]) > 1e-4


def test_an_exam_leaves_the_network_and_its_random_stream_as_they_were(network: nn.Module, validation: Split):
    network.train()
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    evaluate(network, exam=exam_of(validation), causal=True)
    assert network.training
    assert torch.equal(torch.rand(1), expected)


def test_probes_read_norms_of_each_block_and_leave_no_hook(network: nn.Module):
    blocks: nn.ModuleList = network.blocks  # type: ignore[assignment]
    network.eval()
    outputs: dict[int, torch.Tensor] = {}

    def keep(_module: nn.Module, _inputs: object, out: object, *, index: int) -> None:
        outputs[index] = out[0] if isinstance(out, tuple) else out  # type: ignore[assignment]

    own = [block.register_forward_hook(partial(keep, index=index)) for index, block in enumerate(blocks)]
    probes = Probes(blocks, ranks=Alone())
    probes.arm()
    logits_BTV = network(torch.arange(12).view(1, 12)).logits_BTV
    (logits_BTV.square().mean()).backward()
    probes.gradients()
    before = [torch.cat([p.detach().flatten() for p in block.parameters()]).double() for block in blocks]
    torch.optim.SGD(network.parameters(), lr=0.5).step()
    after = [torch.cat([p.detach().flatten() for p in block.parameters()]).double() for block in blocks]
    found = probes.updates()
    for index, block in enumerate(blocks):
        gradient = np.concatenate([p.grad.numpy().ravel() for p in block.parameters() if p.grad is not None])
        name = f"block.{index:02d}"
        assert found[f"gradient_norm/{name}"] == pytest.approx(np.linalg.norm(gradient.astype(np.float64)), rel=1e-6)
        ratio = (after[index] - before[index]).norm() / before[index].norm()
        assert found[f"update_ratio/{name}"] == pytest.approx(ratio.item(), rel=1e-5)
        activation = outputs[index].detach().double().numpy()
        assert found[f"activation_rms/{name}"] == pytest.approx(np.sqrt((activation**2).mean()), rel=1e-5)
    for handle in own:
        handle.remove()
    assert not probes.armed
    assert all(not block._forward_hooks for block in blocks)


@pytest.mark.parametrize("start", [0, 1, 37, 99, 100])
def test_batches_from_any_step_are_the_tail_of_all_batches(laboratory, tmp_path: Path, start: int):
    spec = read_spec(laboratory.declare(tmp_path).folder)
    split = open_split(laboratory.corpus.folder, split="train")
    every = list(StepBatches(split, spec=spec, start=0, device="cpu"))
    tail = list(StepBatches(split, spec=spec, start=start, device="cpu"))
    assert len(every) == 100 * 2
    assert all(rows_BT.shape == (2, 17) for rows_BT in every)
    assert len(tail) == 2 * (100 - start)
    assert all(torch.equal(a, b) for a, b in zip(every[2 * start :], tail, strict=True))


def test_the_order_of_data_depends_on_the_seed_and_not_on_the_model(laboratory, tmp_path: Path):
    split = open_split(laboratory.corpus.folder, split="train")

    def order(**changes: object) -> torch.Tensor:
        spec = read_spec(laboratory.declare(tmp_path / repr(changes), **changes).folder)
        return torch.cat(list(StepBatches(split, spec=spec, start=0, device="cpu")))

    usual = order()
    for changes in ({"width": 32}, {"depth": 1, "learning_rate": 0.1}, {"accumulate": 4}, {"residual": {"kind": "none"}}):
        assert torch.equal(order(**changes), usual), changes
    assert not torch.equal(order(seed=1), usual)
