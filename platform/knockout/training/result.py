"""The sealed result of a run: what it came to, and the digests of the files beside it. Read without torch."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from knockout.ledger.workspace import write_json
from knockout.training.spec import CHECKPOINTS, METRICS, RESULT, SEGMENTS, WEIGHTS

FINAL_STEPS = 50
"""train_loss in a result is the mean over the last so many steps."""


def write_result(folder: Path, *, result: dict[str, Any], files: tuple[str, ...]) -> None:
    """Seal a run: the result names each file beside it by its SHA-256."""
    digests = {name: _sha256(folder / name) for name in files}
    write_json(folder / RESULT, data={**result, "files": digests})


def read_result(folder: Path) -> dict[str, Any] | None:
    """The sealed result of a run, or None when there is none or a file beside it is not the one that it names."""
    try:
        result = json.loads((folder / RESULT).read_bytes())
        whole = all(_sha256(folder / name) == digest for name, digest in result["files"].items())
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return result if whole else None


def discard(folder: Path) -> None:
    """Take away everything that a run with a damaged result has left, the result last: it is trained from its start."""
    for name in (CHECKPOINTS, SEGMENTS):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in (METRICS, WEIGHTS, RESULT):
        (folder / name).unlink(missing_ok=True)


def mean_of_last(table: pa.Table, *, metric: str, count: int) -> float:
    """Mean of a metric over its last `count` rows."""
    values = table.filter(pc.field("metric") == metric)["value"].to_pylist()[-count:]
    return math.fsum(values) / len(values)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
