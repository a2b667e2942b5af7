"""The sealed result of a run: what it came to, and the digests of the files beside it. Read without torch."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from knockout.ledger import kinds
from knockout.ledger.kinds import is_file, is_folder, remove
from knockout.ledger.workspace import write_json
from knockout.training.metrics import series
from knockout.training.spec import CHECKPOINTS, METRICS, PASSED_OVER, RESULT, SEGMENTS, WEIGHTS

FINAL_STEPS = 50
"""train_loss in a result is the mean over the last so many steps."""


def write_result(folder: Path, *, result: dict[str, Any], files: tuple[str, ...]) -> None:
    """Seal a run: the result names each file beside it by its SHA-256."""
    digests = {name: _sha256(folder / name) for name in files}
    write_json(folder / RESULT, data={**result, "files": digests})


def read_result(folder: Path) -> dict[str, Any] | None:
    """The sealed result of a run, or None when there is none or a file beside it is not the one that it names.

    The folder and its files are what they are called: what is reached through a link is none of the run's.
    """
    if not (is_folder(folder) and is_file(folder / RESULT)):
        return None
    try:
        result = json.loads((folder / RESULT).read_bytes())
        whole = all(is_file(folder / name) and _sha256(folder / name) == digest for name, digest in result["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return result if whole else None


def discard(folder: Path) -> None:
    """Take away everything that a run with a damaged result has left, the result last: it is trained from its start."""
    for name in (CHECKPOINTS, SEGMENTS, METRICS, WEIGHTS, RESULT):
        remove(folder / name)


def checkpoint_files(folder: Path) -> list[Path]:
    """The checkpoints of a run's folder, in order of their steps."""
    return kinds.files(folder / CHECKPOINTS, pattern="[0-9]*.pt") if is_folder(folder) else []


def remove_checkpoints(folder: Path) -> None:
    """Take away the checkpoints of a run that is done: it goes on from none."""
    for path in checkpoint_files(folder):
        path.unlink(missing_ok=True)


def tidy(folder: Path) -> None:
    """Take away what killed processes of a run were writing. Only whoever has the folder alone may do so."""
    sealed = (METRICS, WEIGHTS, RESULT, PASSED_OVER)
    for pattern in (f"{CHECKPOINTS}/.*", f"{SEGMENTS}/.*", *(f".{name}.*" for name in sealed)):
        for path in folder.glob(pattern):
            remove(path)


def weight_files(folder: Path) -> list[Path]:
    """The weights of a run and its checkpoints: all that it needs no more once it is judged."""
    weights = [folder / WEIGHTS] if is_folder(folder) and is_file(folder / WEIGHTS) else []
    return [*weights, *checkpoint_files(folder)]


def drop_weights(folder: Path) -> None:
    """Take away weights and checkpoints; a sealed result stays sealed, over what is left. In that order, so that a run
    that is cut off here is whole at any moment."""
    result = read_result(folder)
    if result is not None and WEIGHTS in result["files"]:
        files = {name: digest for name, digest in result["files"].items() if name != WEIGHTS}
        write_json(folder / RESULT, data={**result, "files": files})
    for path in weight_files(folder):
        path.unlink()


def final_metrics(table: pa.Table, *, evaluation: Mapping[str, float]) -> dict[str, float]:
    """What a run came to, from its metric file and its last evaluation; metrics of single layers stay in the file.

    train_loss is the mean over the last steps, tokens_per_second over all of training but start and evaluations, and
    peak_memory_bytes the most of all the processes that trained it.
    """
    whole = {name: value for name, value in evaluation.items() if "/" not in name}
    peaks = _values(table, metric="peak_memory_bytes")
    return {
        **whole,
        "train_loss": mean_of_last(table, metric="train_loss", count=FINAL_STEPS),
        **({"peak_memory_bytes": max(peaks), "tokens_per_second": _mean_rate(table)} if peaks else {}),
    }


def _mean_rate(table: pa.Table) -> float:
    """Tokens over seconds, from the tokens and the rate of each stretch between two evaluations."""
    points = series(table, metric="tokens_per_second")
    tokens = [end - begin for begin, end in pairwise([0, *(point.tokens for point in points)])]
    return math.fsum(tokens) / math.fsum(count / point.value for count, point in zip(tokens, points, strict=True))


def _values(table: pa.Table, *, metric: str) -> list[float]:
    return [point.value for point in series(table, metric=metric)]


def mean_of_last(table: pa.Table, *, metric: str, count: int) -> float:
    """Mean of a metric over its last `count` rows."""
    values = _values(table, metric=metric)[-count:]
    return math.fsum(values) / len(values)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
