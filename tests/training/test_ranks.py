"""Runs on two devices: two processes that compute what one does, and live and die together."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from knockout.declare.document import Document
from knockout.declare.settings import defaults
from knockout.model.objective import ask
from knockout.training.metrics import read_metrics
from knockout.training.progress import read_progress
from knockout.training.ranks import Copies
from knockout.training.result import read_result
from knockout.training.spec import EXIT_STOPPED, LOG, WEIGHTS

STEPS = 30
SHORT: dict[str, Any] = {"tokens": STEPS * 64, "dropout": 0.0}
MIXTURE = {"kind": "moe", "experts": 4, "top_k": 2, "hidden": 32, "balance": {"kind": "loss", "weight": 0.1}}
COST = ("tokens_per_second", "peak_memory_bytes")
QUICKLY_SECONDS = 20.0
"""Ranks that wait for one another do so for minutes."""


def measured(folder: Path) -> dict[tuple[str, int], float]:
    """Every metric of every step but for what it cost."""
    rows = read_metrics(folder).to_pylist()
    return {(row["metric"], row["step"]): row["value"] for row in rows if row["metric"] not in COST}


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return torch.load(folder / WEIGHTS, weights_only=True)["network"]


def processes(session: int) -> Iterator[int]:
    """The processes of a session that still live."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            yield int(path.parent.name)


def ranks(child: Any) -> list[int]:
    """The ranks of a run, in their order: they were forked one after the other."""
    return sorted(set(processes(child.pid)) - {child.pid})


@pytest.mark.parametrize(
    ("strategy", "changes"),
    [("ddp", {}), ("fsdp", {}), ("ddp", {"accumulate": 1, "ffn": MIXTURE})],
    ids=["ddp-accumulated", "fsdp-accumulated", "ddp-mixture"],
)
def test_two_devices_measure_what_one_does_at_every_step(laboratory, tmp_path, strategy, changes):
    one, two = (laboratory.declare(tmp_path / name, **SHORT, **changes) for name in ("one", "two"))
    assert laboratory.train(one) == 0
    assert laboratory.train(two, devices=2, strategy=strategy) == 0
    expected, found = measured(one.folder), measured(two.folder)
    assert [step for metric, step in found if metric == "train_loss"] == list(range(1, STEPS + 1))
    assert found == pytest.approx(expected, rel=1e-5)
    results = [read_result(run.folder) for run in (one, two)]
    assert [(result["devices"], result["strategy"]) for result in results] == [(1, None), (2, strategy)]
    assert weights(two.folder).keys() == weights(one.folder).keys()
    assert results[1]["metrics"]["peak_memory_bytes"] > 0
    assert results[1]["timing"] is None, "plans are for one device"


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {
            "objective": {"kind": "masked"},
            "skeleton": {"kind": "encoder"},
            "attention": {"kind": "multi_head", "causal": False},
        },
    ],
    ids=["next_token", "masked"],
)
def test_the_ranks_shares_are_the_whole_question_in_its_order(changes):
    settings = {"width": 16, "heads": 2, "depth": 1, "context": 8, "vocabulary": 32, "batch": 4, "tokens": 64}
    architecture, _ = defaults().over(Document({**settings, "learning_rate": 0.1, **changes}, {})).resolve()
    whole = ask(torch.arange(54).reshape(6, 9) % 32, architecture=architecture, seed=1)
    shares = [Copies(rank=rank, size=3, device="cpu").share(whole) for rank in range(3)]
    assert torch.equal(torch.cat([share.shown_BT for share in shares]), whole.shown_BT)
    assert torch.equal(torch.cat([share.answers_N for share in shares]), whole.answers_N)
    assert len({len(share.answers_N) for share in shares}) == 1, "means over ranks are means over answers"


def test_a_run_that_lost_a_rank_says_so_at_once_and_goes_on_as_if_it_had_not(laboratory, tmp_path, until):
    whole, cut = (laboratory.declare(tmp_path / name, **{**SHORT, "dropout": 0.1}) for name in ("whole", "cut"))
    assert laboratory.train(whole, devices=2) == 0
    child = laboratory.launch(cut, devices=2, checkpoint_seconds=0.05)
    until(lambda: read_progress(cut.folder) or child.ended.is_set())
    second = ranks(child)[1]
    os.kill(second, signal.SIGKILL)
    began = time.monotonic()
    until(child.ended.is_set)
    assert time.monotonic() - began < QUICKLY_SECONDS
    assert child.code == 1
    assert (cut.folder / LOG).read_text().splitlines()[-1] == "rank 1 of 2 was ended by SIGKILL (out of memory?)"
    until(lambda: not list(processes(child.pid)))
    assert read_result(cut.folder) is None
    assert laboratory.train(cut, devices=2) == 0
    assert measured(cut.folder) == measured(whole.folder)
    assert all(torch.equal(weight, weights(whole.folder)[name]) for name, weight in weights(cut.folder).items())


@pytest.mark.parametrize(("first", "then"), [(("fsdp", 2), ("ddp", 1)), (("ddp", 1), ("fsdp", 2))])
def test_a_stopped_run_goes_on_with_another_number_of_devices(laboratory, tmp_path, until, first, then):
    whole, moved = (laboratory.declare(tmp_path / name, **SHORT) for name in ("whole", "moved"))
    assert laboratory.train(whole) == 0
    child = laboratory.launch(moved, strategy=first[0], devices=first[1], checkpoint_seconds=0.0)
    until(lambda: read_progress(moved.folder) or child.ended.is_set())
    laboratory.nursery.signal(child, signal.SIGTERM)
    until(child.ended.is_set)
    assert child.code == EXIT_STOPPED
    assert (moved.folder / "checkpoints").exists()
    assert laboratory.train(moved, strategy=then[0], devices=then[1]) == 0
    assert measured(moved.folder) == pytest.approx(measured(whole.folder), rel=1e-5)


def test_no_rank_outlives_the_process_of_its_run(laboratory, tmp_path, until):
    run = laboratory.declare(tmp_path, **{**SHORT, "tokens": 64_000_000})
    child = laboratory.launch(run, devices=2)
    until(lambda: read_progress(run.folder) or child.ended.is_set())
    assert len(ranks(child)) == 2
    os.kill(child.pid, signal.SIGKILL)
    until(child.ended.is_set)
    until(lambda: not list(processes(child.pid)))
    assert child.code == -signal.SIGKILL


def test_a_run_that_diverges_does_so_at_the_same_step_on_two_devices(laboratory, tmp_path):
    wild = {**SHORT, "learning_rate": 1e30, "warmup_steps": 0, "norm": {"kind": "none"}}
    one, two = (laboratory.declare(tmp_path / name, **wild) for name in ("one", "two"))
    assert laboratory.train(one) == 0
    assert laboratory.train(two, devices=2) == 0
    results = [read_result(run.folder) for run in (one, two)]
    assert [result["outcome"] for result in results] == ["diverged", "diverged"]
    assert results[0]["reason"] == results[1]["reason"]


def test_the_error_of_a_rank_is_the_runs(laboratory, tmp_path):
    run = laboratory.declare(tmp_path, **SHORT)
    assert laboratory.train(run, devices=2, corpus=tmp_path / "elsewhere") == 1
    said = (run.folder / LOG).read_text().splitlines()
    assert said[-1].startswith("rank ")
    assert any("elsewhere" in line for line in said)
