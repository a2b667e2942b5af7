"""A sweep of a study as rows: the final metrics of each cell, and the outcome of each claim.

The invariant: a row holds a number with its spread and its count, so that later nights are judged without the runs.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from knockout.judge.statistics.student import t_quantile

PAIRED = ("worse", "better", "higher", "lower", "equivalent")
"""Relations whose effect is a mean over paired seeds, with Student's interval."""


@dataclass(frozen=True)
class Row:
    """What one sweep found of one cell's metric, or of one claim."""

    time: float
    """When the sweep began, in seconds since 1970."""
    study: str
    size: str
    kind: Literal["metric", "claim"]
    name: str
    """The variant, or the claim."""
    metric: str
    """The metric; of a claim, `effect`."""
    outcome: str | None
    """A claim's verdict."""
    mean: float | None
    sd: float | None
    num_seeds: int
    first_seed: int
    submission: str
    declaration: str
    """Digest of the study as it was declared: what is compared must be the same question."""
    machine: str
    """Processor and cores: throughput is compared on one machine only."""
    versions: str
    """Of knockout and of what trains."""
    code: str
    """Digest of the code that trained."""


def rows_of(facts: Mapping[str, Any], *, time: float, submission: str, first_seed: int, code: str) -> Iterator[Row]:
    """The rows of a study's report."""
    study, versions, machine = facts["study"], facts["versions"], facts["machine"]
    same: dict[str, Any] = {
        "time": time,
        "study": study["name"],
        "submission": submission,
        "first_seed": first_seed,
        "declaration": hashlib.sha256(study["declaration"].encode()).hexdigest()[:16],
        "machine": f"{machine['processor']}, {machine['cores']} cores",
        "versions": ", ".join(f"{name} {versions[name]}" for name in ("knockout", "torch", "pytorch-lightning")),
        "code": code,
    }
    for cell in facts["finals"]:
        for metric, found in cell["metrics"].items():
            spread = {"mean": found["mean"], "sd": found["sd"], "num_seeds": found["num_seeds"], "outcome": None}
            yield Row(size=cell["size"], kind="metric", name=cell["variant"], metric=metric, **spread, **same)
    for verdict in facts["verdicts"]:
        yield Row(
            size=verdict["size"],
            kind="claim",
            name=verdict["claim"],
            metric="effect",
            outcome=verdict["outcome"],
            mean=verdict["effect"],
            sd=_sd(verdict),
            num_seeds=verdict["num_seeds"],
            **same,
        )


def _sd(verdict: Mapping[str, Any]) -> float | None:
    """The spread of a claim's paired differences, from its interval: half of it is t · sd / sqrt(n) (Student 1908)."""
    interval, count = verdict["interval"], verdict["num_seeds"]
    if verdict["relation"] not in PAIRED or interval is None or count < 2 or None in (interval["low"], interval["high"]):
        return None
    half = (interval["high"] - interval["low"]) / 2.0
    return half * math.sqrt(count) / t_quantile(0.5 + interval["level"] / 2.0, degrees=count - 1)
