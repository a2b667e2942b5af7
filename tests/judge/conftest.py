"""Run records and claims as short as a test wants to write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from knockout.declare.claim import Claim, Competence, Decide
from knockout.judge import Judgement, RunRecord, decide

FLOORS = {"unigram": 5.0, "bigram": 4.0}

MakeRun = Callable[..., RunRecord]
MakeCell = Callable[..., list[RunRecord]]
MakeClaim = Callable[..., Claim]
Judge = Callable[..., Judgement]


@pytest.fixture
def run() -> MakeRun:
    def make(variant: str, seed: int, loss: float | None = None, **changes: Any) -> RunRecord:
        fields: dict[str, Any] = {
            "identity": f"{variant}{seed}",
            "variant": variant,
            "size": "nano",
            "seed": seed,
            "state": "done",
            "reason": None,
            "reused": False,
            "folder": Path("/nowhere"),
            "step": 100,
            "planned_steps": 100,
            "metrics": {} if loss is None else {"val_loss": loss, "train_loss": loss},
            "causal": True,
            "seconds": 10.0,
            "tokens": 1000,
            "flops": 1e9,
            "parameters": {"total": 10},
        }
        return RunRecord(**{**fields, **changes})

    return make


@pytest.fixture
def cell(run: MakeRun) -> MakeCell:
    """One run a seed, seeds counted from 0; None stands for a divergence."""

    def make(variant: str, losses: Sequence[float | None], **changes: Any) -> list[RunRecord]:
        diverged = {"state": "diverged", "reason": "loss is not finite", "step": 7}
        return [
            run(variant, seed, loss, **({**changes, **diverged} if loss is None else changes))
            for seed, loss in enumerate(losses)
        ]

    return make


@pytest.fixture
def claim() -> MakeClaim:
    def make(relation: str, *, variant: str = "v", name: str = "T1-a", **expect: Any) -> Claim:
        return Claim.model_validate(
            {"id": name, "says": "something", "expect": {"variant": variant, "is": relation, **expect}}
        )

    return make


@pytest.fixture
def judge() -> Judge:
    def make(
        claims: Claim | Sequence[Claim],
        records: Sequence[RunRecord],
        *,
        alpha: float = 0.05,
        metric: Any = "val_loss",
        competence: Competence | None = None,
        floors: Mapping[str, float] = FLOORS,
        leak: Mapping[tuple[str, str], float] | None = None,
        sizes: Sequence[str] = ("nano",),
    ) -> Judgement:
        return decide(
            [claims] if isinstance(claims, Claim) else claims,
            decide=Decide(alpha=alpha, metric=metric),
            competence=competence or Competence(),
            records=records,
            floors=dict.fromkeys(sizes, floors),
            future_leak=leak or {},
            sizes=sizes,
        )

    return make
