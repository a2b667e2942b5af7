"""Whether training on this machine's GPU is as good as it is on a CPU: `make gpu-check`, at most eight minutes.

Real runs, in processes of the nursery, on a synthetic corpus in a temporary folder. The invariant: each check prints one
line, and the exit code is 0 only when all of them held. Needs nothing beyond what a training process needs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import torch
import torch.nn.functional as F

from knockout.corpus.prepare import Prepared, prepare
from knockout.corpus.reading import open_split
from knockout.declare.architecture import Architecture
from knockout.declare.corpus import Corpus
from knockout.declare.recipe import Recipe
from knockout.errors import KnockoutError, RunError
from knockout.ledger.identity import meaning
from knockout.ledger.workspace import write_json
from knockout.model import Network, build
from knockout.training.data import StepBatches
from knockout.training.launcher import Child, Nursery
from knockout.training.metrics import read_metrics
from knockout.training.module import build_optimizer
from knockout.training.result import checkpoint_files, read_result
from knockout.training.run import EXIT_STOPPED
from knockout.training.spec import MEANING, WEIGHTS, Runtime, read_spec

LEAST_RATIO = 0.9
"""Tokens per second against a plain loop, under which the check warns."""
LOSS_TOLERANCE = 0.01
"""Largest difference of a final training loss, in nats, between a resumed and an uninterrupted run."""
RUN_SECONDS = 240.0
STOPS = (signal.SIGTERM, signal.SIGKILL)
WARM_UP = 10
CORPUS = """{"corpus": "gpu-check", "tokenizer": {"kind": "identity"}, "validation": 0.2,
"evaluation": {"tokens": %d, "segments": 8},
"source": {"kind": "markov", "order": 1, "alphabet": 60, "documents": %d, "length": 500}}"""

SETTINGS = {"vocabulary": 64, "learning_rate": 0.003, "warmup_steps": 20, "evaluations": 4}


@dataclass(frozen=True)
class Scale:
    """How large the runs are."""

    documents: int
    exam_tokens: int
    settings: dict[str, Any]
    speed: dict[str, Any]
    compiled: tuple[bool, ...]


FULL = Scale(
    documents=400,
    exam_tokens=8192,
    settings={"width": 256, "depth": 4, "heads": 4, "context": 128, "batch": 16, "tokens": 600 * 2048, "accumulate": 2},
    speed={
        "width": 768, "depth": 12, "heads": 12, "context": 1024, "vocabulary": 32768, "batch": 16, "tokens": 160 * 16384,
        "precision": "bf16", "compile": True,
    },
    compiled=(False, True),
)  # fmt: skip
SMALL = Scale(
    documents=60,
    exam_tokens=256,
    settings={
        "width": 16,
        "depth": 1,
        "heads": 2,
        "context": 16,
        "batch": 8,
        "tokens": 120 * 128,
        "accumulate": 2,
        "learning_rate": 0.02,
    },
    speed={"width": 16, "depth": 1, "heads": 2, "context": 16, "batch": 8, "tokens": 60 * 128},
    compiled=(False,),
)


class Failed(KnockoutError):
    """What a check found is not what it should be."""


@dataclass(frozen=True)
class Bench:
    """Where runs are trained."""

    folder: Path
    device: str
    scale: Scale
    nursery: Nursery
    corpus: Prepared

    def declare(self, name: str, *, settings: dict[str, Any], **changes: Any) -> Path:
        """The folder of a new run."""
        values = {**SETTINGS, **settings, **changes}
        architecture = Architecture.model_validate_json(text_of(values, fields=Architecture.model_fields))
        recipe = Recipe.model_validate_json(text_of(values, fields=Recipe.model_fields))
        manifest = self.corpus.manifest
        evaluation = {**manifest.evaluation.model_dump(mode="json"), "window": architecture.context}
        data = meaning(architecture=architecture, recipe=recipe, corpus=manifest.digest, evaluation=evaluation, seed=0)
        folder = self.folder / name
        folder.mkdir()
        write_json(folder / MEANING, data=data)
        return folder

    def launch(self, folder: Path) -> Child:
        """Start a run, or go on with it."""
        runtime = Runtime(corpus=str(self.corpus.folder), device=self.device, checkpoint_seconds=0.2)
        return self.nursery.launch(folder, runtime=runtime, environment={})

    def train(self, folder: Path) -> dict[str, Any]:
        """Train a run to its result."""
        if (code := ended(self.launch(folder))) != 0:
            raise Failed(f"the run {folder.name} ended with exit code {code}: {last_words(folder)}")
        result = read_result(folder)
        if result is None:
            raise Failed(f"the run {folder.name} left no whole result")
        return result


def text_of(values: dict[str, Any], *, fields: Collection[str]) -> str:
    """Those values that are fields, as JSON."""
    return json.dumps({name: value for name, value in values.items() if name in fields})


def main(arguments: list[str] | None = None) -> int:
    """Run every check; 0 when all held."""
    parser = argparse.ArgumentParser(prog="gpu-check", description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: try the checks without a GPU")
    parser.add_argument("--small", action="store_true", help="seconds instead of minutes; shows no speed")
    chosen = parser.parse_args(arguments)
    if chosen.device == "cuda" and not torch.cuda.is_available():
        print("gpu-check: torch sees no CUDA device on this machine")
        return 1
    started = time.monotonic()
    scale = SMALL if chosen.small else FULL
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as place:
        held = check_all(Path(place), device=chosen.device, scale=scale)
    print(f"{sum(held)} of {len(held)} checks held, in {time.monotonic() - started:.0f} s")
    return 0 if all(held) else 1


def check_all(folder: Path, *, device: str, scale: Scale) -> list[bool]:
    """Whether each check held, in order."""
    declared = Corpus.model_validate_json(CORPUS % (scale.exam_tokens, scale.documents))
    nursery = Nursery(os.environ, log=folder / "nursery.log")
    try:
        corpus = prepare(declared, vocabulary=64, folder=folder, base=folder)
        bench = Bench(folder, device, scale, nursery, corpus)
        return [check(name, act) for name, act in checks(bench)]
    finally:
        nursery.close()


def checks(bench: Bench) -> Iterator[tuple[str, Callable[[], str]]]:
    """Every check: its name, and what does it and says what it found."""
    for compiled in bench.scale.compiled:
        for precision in ("fp32", "bf16"):
            name = f"learns {precision}{' compiled' if compiled else ''}"
            yield name, lambda precision=precision, compiled=compiled: learns(bench, precision=precision, compiled=compiled)
    yield "data order", lambda: same_batches(bench)
    yield "divergence", lambda: diverges(bench)
    yield "resume", lambda: resumes(bench)
    yield "speed", lambda: speed(bench)


def check(name: str, act: Callable[[], str]) -> bool:
    """Do one check and print its line."""
    started = time.monotonic()
    try:
        found, held = act(), True
    except (Failed, RunError, RuntimeError) as error:
        found, held = f"{error}", False
    print(f"{'ok  ' if held else 'FAIL'} {name}: {found} ({time.monotonic() - started:.1f} s)", flush=True)
    return held


def learns(bench: Bench, *, precision: str, compiled: bool) -> str:
    """Training brings the loss well under where it starts, and every step is recorded once."""
    folder = bench.declare(f"{precision}-{compiled}", settings=bench.scale.settings, precision=precision, compile=compiled)
    end = bench.train(folder)["metrics"]["train_loss"]
    first = every_step(folder)[0]
    if not end < first - 0.3:
        raise Failed(f"the training loss went from {first:.3f} to {end:.3f} only")
    activations = read_metrics(folder).filter(pc.field("metric") == "activation_rms/block.00").num_rows
    if activations != 4:
        raise Failed(f"the block's activations were measured {activations} times and not at each of 4 evaluations")
    return f"training loss {first:.4f} -> {end:.4f}"


def same_batches(bench: Bench) -> str:
    """The device sees the batches that a CPU sees, in the same order."""
    folder = bench.declare("order", settings=bench.scale.settings)
    digests = {device: batches_digest(bench, folder=folder, device=device) for device in ("cpu", bench.device)}
    if len(set(digests.values())) != 1:
        raise Failed(f"the batches differ: {digests}")
    return f"sha256 {digests['cpu'][:16]} on both"


def batches_digest(bench: Bench, *, folder: Path, device: str) -> str:
    """SHA-256 of all of a run's batches as they arrive on a device."""
    digest = hashlib.sha256()
    split = open_split(bench.corpus.folder, split="train")
    for rows_BT in StepBatches(split, spec=read_spec(folder), start=0, device=device):
        digest.update(rows_BT.cpu().numpy().tobytes())
    return digest.hexdigest()


def diverges(bench: Bench) -> str:
    """A run whose weights explode is a result with the exact step, whenever that is read from the device."""
    folder = bench.declare("diverging", settings=bench.scale.settings, learning_rate=1e12, warmup_steps=0, clip=None)
    result = bench.train(folder)
    recorded = len(every_step(folder, result["step"] - 1))
    if result["outcome"] != "diverged" or recorded != result["step"] - 1:
        raise Failed(f"outcome {result['outcome']} at step {result['step']} after {recorded} recorded steps")
    weights = torch.load(folder / WEIGHTS, map_location="cpu", weights_only=True)["network"]
    if not all(tensor.isfinite().all() for tensor in weights.values()):
        raise Failed(f"the weights of before step {result['step']} were not kept")
    return f"{result['reason']}; its weights are those of before"


def resumes(bench: Bench) -> str:
    """Stopped by SIGTERM, or killed, and gone on with, a run ends where an uninterrupted one does."""
    whole = interrupted(bench, name="whole", number=None)
    found = {sent.name: difference(whole, interrupted(bench, name=sent.name, number=sent)) for sent in STOPS}
    if not any(found.values()):
        return f"equal bit for bit after {' and '.join(found)}"
    spread = difference(whole, interrupted(bench, name="whole-again", number=None))
    said = ", ".join(f"{loss:.1e} after {name}" for name, loss in found.items())
    said = f"final losses differ by {said}, and by {spread:.1e} between two uninterrupted runs"
    if spread == 0.0 or max(found.values()) > LOSS_TOLERANCE:
        raise Failed(said)
    return said


def interrupted(bench: Bench, *, name: str, number: signal.Signals | None) -> Path:
    """The folder of a finished run that was sent a signal after its first checkpoint, and then went on."""
    folder = bench.declare(name, settings=bench.scale.settings)
    if number is not None:
        child = bench.launch(folder)
        while not child.ended.is_set() and not checkpoint_files(folder):
            time.sleep(0.005)
        bench.nursery.signal(child, number)
        expected = EXIT_STOPPED if number is signal.SIGTERM else -number
        if (code := ended(child)) != expected:
            raise Failed(f"{number.name} ended the run with {code} and not {expected}: {last_words(folder)}")
    bench.train(folder)
    every_step(folder, read_spec(folder).num_steps)
    return folder


def difference(one: Path, other: Path) -> float:
    """0 when weights and losses of two runs are equal bit for bit, else the difference of their final training losses."""
    states = [torch.load(folder / WEIGHTS, map_location="cpu", weights_only=True)["network"] for folder in (one, other)]
    same = all(torch.equal(tensor, states[1][name]) for name, tensor in states[0].items())
    if same and every_step(one) == every_step(other):
        return 0.0
    losses = [json.loads((folder / "result.json").read_text())["metrics"]["train_loss"] for folder in (one, other)]
    return max(abs(losses[0] - losses[1]), sys.float_info.epsilon)


def speed(bench: Bench) -> str:
    """Tokens per second of a run against a plain loop over the same network."""
    folder = bench.declare("speed", settings=bench.scale.speed)
    bench.train(folder)
    rates = read_metrics(folder).filter(pc.field("metric") == "tokens_per_second")["value"].to_pylist()
    ratio = rates[-1] / (plain := plain_rate(bench, folder=folder))
    warning = "" if ratio >= LEAST_RATIO else f"; WARNING: under {LEAST_RATIO}"
    return f"{rates[-1]:,.0f} tokens/s, a plain loop {plain:,.0f}: ratio {ratio:.2f}{warning}"


def plain_rate(bench: Bench, *, folder: Path) -> float:
    """Tokens per second of a bare torch loop, its batches on the device beforehand."""
    spec, device = read_spec(folder), torch.device(bench.device)
    split = open_split(bench.corpus.folder, split="train")
    batches = [rows_BT for rows_BT, _ in zip(StepBatches(split, spec=spec, start=0, device="cpu"), range(8), strict=False)]
    network = build(spec.architecture, seed=0, device=bench.device)
    optimizer = build_optimizer(network, architecture=spec.architecture, recipe=spec.recipe, device=device)
    if spec.recipe.compile:
        network.compile()
    on_device = [rows_BT.to(device) for rows_BT in batches]
    steps = spec.num_steps // 2
    started = 0.0
    for step in range(steps + WARM_UP):
        if step == WARM_UP:
            wait(device)
            started = time.monotonic()
        plain_step(network, optimizer, rows_BT=on_device[step % len(on_device)], bf16=spec.recipe.precision == "bf16")
    wait(device)
    return steps * spec.tokens_per_step / (time.monotonic() - started)


def plain_step(network: Network, optimizer: torch.optim.Optimizer, *, rows_BT: torch.Tensor, bf16: bool) -> None:
    """Forward, backward, clip, update."""
    with torch.autocast(rows_BT.device.type, dtype=torch.bfloat16, enabled=bf16):
        logits_BTV = network(rows_BT[:, :-1]).logits_BTV
    F.cross_entropy(logits_BTV.float().flatten(0, 1), rows_BT[:, 1:].flatten()).backward()
    torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def wait(device: torch.device) -> None:
    """Until the device has done all that it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def every_step(folder: Path, steps: int | None = None) -> list[float]:
    """A run's training losses, one for each step from the first; as many gradient norms and learning rates stand there.

    Raises:
        Failed: a step is missing or stands there twice, or there are not `steps`.
    """
    table = read_metrics(folder)
    for metric in ("train_loss", "gradient_norm", "learning_rate"):
        numbers = table.filter(pc.field("metric") == metric)["step"].to_pylist()
        if numbers != list(range(1, len(numbers) + 1)) or (steps is not None and len(numbers) != steps):
            raise Failed(f"the run {folder.name} has {metric} at {len(numbers)} steps, not once at each of {steps or 'its'}")
    return table.filter(pc.field("metric") == "train_loss")["value"].to_pylist()


def ended(child: Child) -> int | None:
    """The exit code of a run's process."""
    if not child.ended.wait(RUN_SECONDS):
        raise Failed(f"a run was not done within {RUN_SECONDS:.0f} s")
    return child.code


def last_words(folder: Path) -> str:
    """The last line of a run's log."""
    log = folder / "log.txt"
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1] if lines else "without a message"


if __name__ == "__main__":
    sys.exit(main())
