"""What a sealed run says, to be held against another's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import torch

from knockout.training.metrics import read_metrics
from knockout.training.spec import RESULT, WEIGHTS

COST = ["tokens_per_second", "peak_memory_bytes"]


def came_to(folder: Path) -> dict[str, Any]:
    """Everything that a sealed run says, but for what it cost."""
    result = json.loads((folder / RESULT).read_text())
    weights = torch.load(folder / WEIGHTS, weights_only=True)["network"]
    rows = read_metrics(folder).filter(~pc.field("metric").isin(COST)).drop_columns(["time"]).to_pylist()
    kept = {name: result[name] for name in ("outcome", "reason", "step", "planned_steps")}
    metrics = {name: value for name, value in result["metrics"].items() if name not in COST}
    return {**kept, "metrics": metrics, "weights": {name: x.numpy().tobytes() for name, x in weights.items()}, "rows": rows}


def last_checkpoint(folder: Path) -> int:
    return max((int(path.stem) for path in (folder / "checkpoints").glob("[0-9]*.pt")), default=0)
