"""The peak of memory: that of a step, against the allocator's own count and against what theory asks for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
import torch
from kinds import KINDS
from torch import nn
from torch.profiler import ProfilerActivity, profile

from knockout.model import Network, build
from knockout.model.objective import ask
from knockout.training.memory import LiveTensors, TensorMemory, peak_memory
from knockout.training.metrics import read_metrics
from knockout.training.result import read_result

MEBI = 1 << 20
MOE = {"ffn": {"kind": "moe", "experts": 4, "top_k": 2, "hidden": 64}}


@contextmanager
def allocated(folder: Path) -> Iterator[list[int]]:
    """The most bytes that torch's allocator gave out meanwhile, at one time and beyond those before, once it is left."""
    most: list[int] = []
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        yield most
    profiler.export_chrome_trace(str(folder / "trace.json"))
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    taken, peak = 0, 0
    for event in sorted((event for event in events if event["name"] == "[memory]"), key=lambda event: event["ts"]):
        taken += event["args"]["Bytes"]
        peak = max(peak, taken)
    most.append(peak)


def stepper(network: Network) -> tuple[Callable[[], None], torch.optim.Optimizer]:
    """A function that takes an optimizer step of AdamW, the same each time; one is taken, and no gradient is left."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.0, weight_decay=0.0, fused=True)
    tokens_BT = torch.randint(32, (8, 64), generator=torch.Generator().manual_seed(0))

    def step() -> None:
        logits_BTV = network(tokens_BT).logits_BTV
        nn.functional.cross_entropy(logits_BTV.flatten(0, 1), tokens_BT.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    return step, optimizer


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_counting_changes_no_bit_of_what_is_trained(kind):
    left = []
    for counted in (False, True):
        network = build(kind, seed=0)
        optimizer = torch.optim.AdamW(network.parameters(), fused=True)
        memory, norms = TensorMemory(), []
        for seed in range(2):
            torch.manual_seed(seed)
            question = ask(torch.randint(11, (4, 13)), architecture=kind, seed=seed)
            with memory.counted(network, optimizer=optimizer) if counted else nullcontext():
                logits_NV = question.logits_NV(question.put_to(network))
                nn.functional.cross_entropy(logits_NV, question.answers_N).backward()
                norms.append(nn.utils.clip_grad_norm_(network.parameters(), 1.0))
                optimizer.step()
                optimizer.zero_grad()
        left.append([*network.state_dict().values(), *norms])
        assert (memory.most > 0) == counted
    assert all(map(torch.equal, *left))


@pytest.mark.parametrize("changes", [{}, MOE, {"dropout": 0.1}], ids=["dense", "mixture", "dropout"])
def test_the_bytes_of_a_step_are_those_that_the_allocator_gives_out(laboratory, tmp_path, changes):
    declared = laboratory.declare(tmp_path, width=64, context=64, **{"dropout": 0.0, **changes})
    network = build(declared.architecture, seed=0)
    step, optimizer = stepper(network)
    memory = TensorMemory()
    with memory.counted(network, optimizer=optimizer):
        step()
    moments = [value.nbytes for state in optimizer.state.values() for value in state.values()]
    held = sum(tensor.nbytes for tensor in (*network.parameters(), *network.buffers())) + sum(moments)
    with allocated(tmp_path) as peak:
        step()
    assert memory.most == pytest.approx(held + peak[0], rel=0.03)
    assert peak[0] > held / 8, "the step itself is what is looked at"


def test_a_tensor_counts_from_its_making_to_its_end_and_once_however_often_it_is_viewed():
    with LiveTensors() as live:
        large = torch.empty(40 * MEBI, dtype=torch.uint8)
        views = [large[:10], large.view(2, -1), large.detach()]
        assert live.bytes == 40 * MEBI
        del large
        assert live.bytes == 40 * MEBI, "a view holds all of it"
        views.clear()
        assert live.bytes == 0
        kept = torch.zeros(24 * MEBI, dtype=torch.uint8), torch.zeros(8 * MEBI, dtype=torch.uint8).add_(1)
        assert live.bytes == 32 * MEBI
    assert live.most == 40 * MEBI
    torch.empty(80 * MEBI, dtype=torch.uint8)
    del kept
    assert (live.bytes, live.most) == (0, 40 * MEBI), "nothing begins to count once it is left"


def test_a_run_records_the_peak_of_its_steps_and_it_bears_no_identity(laboratory, tmp_path):
    assert isinstance(peak_memory(device="cpu"), TensorMemory)
    few = {"depth": 1, "tokens": 256, "warmup_steps": 0, "evaluations": 2, "dropout": 0.0}
    runs = [laboratory.declare(tmp_path / name, width=512, **few) for name in ("one", "again")]
    peaks = []
    for run in runs:
        assert laboratory.train(run) == 0
        peaks.append(read_result(run.folder)["metrics"]["peak_memory_bytes"])
        rows = [row["value"] for row in read_metrics(run.folder).to_pylist() if row["metric"] == "peak_memory_bytes"]
        assert peaks[-1] == max(rows)
        assert "peak_memory_bytes" not in json.dumps(run.meaning)
    assert peaks[0] == peaks[1], "equal runs need equal bytes"
    weights = sum(parameter.nbytes for parameter in build(runs[0].architecture, seed=0).parameters())
    blocks = sum(parameter.nbytes for parameter in build(runs[0].architecture, seed=0).blocks.parameters())
    needed = 4 * weights + blocks
    assert needed < peaks[0] < 1.1 * needed, "weights, gradients, two moments, and what an update is held against"
