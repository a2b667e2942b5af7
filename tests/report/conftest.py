"""A small study as its runs would have left it: records, metric files, judgement and facts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from knockout.declare.claim import Claim, Competence, Decide
from knockout.judge import Judgement, RunRecord, decide
from knockout.report.dashboard import Dashboard
from knockout.report.facts import facts

FLOORS = {"unigram": 5.32, "bigram": 3.96}
STEPS, EVERY, TOKENS_A_STEP, DEPTH = 60, 20, 1024, 4


@dataclass(frozen=True)
class Story:
    """How a variant's runs go: where its losses end, and how its gradient changes from block to block."""

    val: float
    train: float
    generation: float | None = None
    gradient_ratio: float = 1.1
    diverges_after: float | None = None


STORIES = {
    "baseline": Story(val=3.29, train=3.2),
    "no-mask": Story(val=0.03, train=0.02, generation=9.1),
    "no-residual": Story(val=5.3, train=5.25, gradient_ratio=6.0),
    "no-norm": Story(val=4.0, train=4.0, gradient_ratio=0.7, diverges_after=0.5),
}


def curve(final: float, step: int, steps: int) -> float:
    return final + (6.24 - final) * math.exp(-6.0 * step / steps)


def metric_rows(story: Story, *, steps: int, every: int, depth: int, seed: int) -> Iterator[tuple[int, str, float]]:
    rng = np.random.default_rng([seed, round(1000 * story.val)])
    shift = 0.03 * rng.normal()
    end = last_step(story, steps=steps)
    for step in range(1, end + 1):
        wild = story.diverges_after is not None and step > 0.95 * end
        yield (
            step,
            "train_loss",
            curve(story.train + shift, step, steps) + 0.05 * rng.normal() + (math.inf if wild and step == end else 9 * wild),
        )
        yield step, "gradient_norm", 0.5
        if step % every == 0 or step == 1:
            yield step, "val_loss", curve(story.val + shift, step, steps)
            if story.generation is None:
                yield step, "generation_loss", curve(story.val + shift, step, steps) - 0.1
            else:
                yield step, "generation_loss", 6.24 + (story.generation - 6.24) * step / steps + shift
            for block in range(depth):
                depth_left = depth - 1 - block
                noise = math.exp(0.1 * rng.normal())
                yield step, f"gradient_norm/block.{block:02d}", noise * story.gradient_ratio**-depth_left
                yield step, f"activation_rms/block.{block:02d}", noise * (1 + 0.3 * block)


def last_step(story: Story, *, steps: int) -> int:
    return steps if story.diverges_after is None else int(story.diverges_after * steps)


def make_run(
    folder: Path,
    variant: str,
    seed: int,
    *,
    size: str = "nano",
    steps: int = STEPS,
    every: int = EVERY,
    depth: int = DEPTH,
) -> RunRecord:
    story = STORIES[variant]
    rows = list(metric_rows(story, steps=steps, every=every, depth=depth, seed=seed))
    home = folder / f"{variant}-{size}-{seed}"
    home.mkdir(parents=True)
    columns = {"step": pl.Int64, "metric": pl.String, "value": pl.Float64}
    frame = pl.DataFrame(rows, schema=columns, orient="row")
    tokens, time = pl.col("step") * TOKENS_A_STEP, 1.7e9 + pl.col("step").cast(pl.Float64)
    frame.select("step", "metric", "value", tokens=tokens, time=time).write_parquet(home / "metrics.parquet")
    last = {metric: value for _, metric, value in rows}
    step = last_step(story, steps=steps)
    final = {name: last[name] for name in ("train_loss", "val_loss", "generation_loss") if name in last}
    parts = {"embedding": 32_768, "attention": 16_384 * depth, "feed_forward": 32_768 * depth, "norm": 512 * depth}
    if variant == "no-norm":
        parts["norm"] = 0
    return RunRecord(
        identity=f"{abs(hash_text(f'{variant}{size}{seed}')):016x}",
        variant=variant,
        size=size,
        seed=seed,
        state="diverged" if story.diverges_after else "done",
        reason="the loss is not finite" if story.diverges_after else None,
        reused=variant == "baseline",
        folder=home,
        step=step,
        planned_steps=steps,
        metrics={**final, "bits_per_byte": final["val_loss"] / 1.7} if not story.diverges_after else {},
        causal=story.generation is None,
        seconds=33.0 + seed,
        tokens=step * TOKENS_A_STEP,
        flops=4.2e12 * step / steps,
        parameters={**parts, "total": sum(parts.values()), "active": sum(parts.values())},
    )


def hash_text(text: str) -> int:
    return int.from_bytes(text.encode()[-8:], "big")


def make_claim(name: str, says: str, **expect: Any) -> Claim:
    return Claim.model_validate({"id": name, "says": says, "expect": expect})


CLAIMS = [
    make_claim(
        "T6.4-peek",
        "Without the causal mask the model has learnt no prediction",
        **{"variant": "no-mask", "is": "worse", "by": 1.0},
    ),
    make_claim(
        "T6.4-train",
        "Its training loss becomes near perfect",
        **{"variant": "no-mask", "is": "better", "by": 2.0, "metric": "train_loss"},
    ),
    make_claim("T6.4-causal", "It sees later tokens", **{"variant": "no-mask", "is": "not_causal"}),
    make_claim(
        "T7.1-residual",
        "Without residuals the stack learns as well",
        **{"variant": "no-residual", "is": "equivalent", "to": "baseline"},
    ),
    make_claim("T7.2-norm", "Without norms it diverges", **{"variant": "no-norm", "is": "diverges"}),
    make_claim("T7.2-worse", "Without norms it is worse", **{"variant": "no-norm", "is": "worse"}),
    make_claim("T8.6-ffn", "Without the FFN it is worse", **{"variant": "no-ffn", "is": "worse"}),
]


def make_trial(
    number: int,
    learning_rate: float,
    *,
    state: str,
    loss: float | None = None,
    last: tuple[int, float] | None = None,
    seconds: float,
    extends: str | None = None,
) -> dict[str, Any]:
    return {
        "number": number, "values": {"learning_rate": learning_rate}, "state": state, "loss": loss, "reason": None,
        "last": last if loss is None else (STEPS, loss), "extends": extends, "seconds": seconds, "tokens": 1_000,
        "flops": 1e9, "identities": [f"{number:020d}"], "reused": number < 2,
    }  # fmt: skip


STUDY: dict[str, Any] = {
    "name": "mask-and-residual",
    "question": "What is lost without the causal mask, <script>alert('x')</script> & residuals?",
    "source": {"document": "T", "section": "6.4"},
    "corpus": "python-source",
    "sizes": ["nano"],
    "seeds": [0, 1, 2],
    "decide": Decide(),
    "declaration": "study: mask-and-residual\nquestion: <b>bold</b>\n",
    "tuned": [
        {
            "variant": variant,
            "size": "nano",
            "trials": [
                make_trial(0, 1e-3, state="done", loss=3.5, seconds=30.0),
                make_trial(1, 1e-2, state="done", loss=3.25, seconds=31.0),
                make_trial(2, 1e-1, state="diverged", seconds=10.0),
                make_trial(3, 1e-4, state="pruned", last=(20, 5.75), seconds=9.0),
                make_trial(4, 3e-2, state="done", loss=3.3, seconds=32.0, extends="learning_rate"),
            ],
            "chosen": {"learning_rate": 1e-2},
            "edges": {"learning_rate": "high"} if variant == "no-mask" else {},
            "log": {"learning_rate": True},
            "metric": "val_loss",
            "saved_share": 2 / 15,
            "sentence": "5 trials, 1 of them beyond the range, 1 pruned: 13% of the tuning tokens saved",
        }
        for variant in ("baseline", "no-mask")
    ],
    "patches": {
        "no-mask": {"attention": {"mask": {"kind": "none"}}},
        "no-residual": {"residual": {"kind": "none"}},
        "no-norm": {"norm.kind": "none"},
    },
}


def judged(records: list[RunRecord], *, sizes: list[str]) -> Judgement:
    return decide(
        CLAIMS,
        decide=Decide(),
        competence=Competence(),
        records=records,
        floors=dict.fromkeys(sizes, FLOORS),
        future_leak={("no-mask", size): 0.14 for size in sizes},
        sizes=sizes,
    )


def make_facts(
    records: list[RunRecord], *, study: dict[str, Any] = STUDY, dashboard: Dashboard | None = None
) -> dict[str, Any]:
    return facts(
        study,
        records=records,
        judgement=judged(records, sizes=study["sizes"]),
        floors=dict.fromkeys(study["sizes"], FLOORS),
        manifest_digest="sha256:0123abcd",
        versions={"knockout": "0.1.0", "torch": "2.13"},
        machine={"cpu": "2 cores", "memory": "8 GB"},
        seconds={"total": 421.0, "training": 402.0},
        command="knockout run mask-and-residual --size nano --seeds 3",
        dashboard=dashboard,
    )


@pytest.fixture(scope="session")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[RunRecord]:
    folder = tmp_path_factory.mktemp("runs")
    runs = [make_run(folder, variant, seed) for variant in STORIES for seed in range(3)]
    broken = replace(runs[8], state="failed", reason="out of <memory>", metrics={}, step=12)
    return [*runs[:8], broken, *runs[9:]]


@pytest.fixture(scope="session")
def report_facts(records: list[RunRecord]) -> dict[str, Any]:
    return make_facts(records)


@pytest.fixture(scope="session")
def judgement(records: list[RunRecord]) -> Judgement:
    return judged(records, sizes=["nano"])


@pytest.fixture(scope="session")
def make_report() -> Callable[..., dict[str, Any]]:
    """Facts of other records or another dashboard."""
    return make_facts


@pytest.fixture(scope="session")
def make() -> Callable[..., RunRecord]:
    """A run with its metric file."""
    return make_run
