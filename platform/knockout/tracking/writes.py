"""Writing to one run: tags, parameters, points, files. Each in batches that MLflow takes.

The invariant: writing the same again changes nothing.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from knockout.tracking import naming
from knockout.tracking.curves import Row, timestamp

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

MAX_METRICS_PER_BATCH = 1_000
MAX_PARAMS_PER_BATCH = 100
MAX_DIGEST_CHARACTERS = 36
T = TypeVar("T")


def batches(items: Sequence[T], *, size: int) -> Iterator[Sequence[T]]:
    """The items in pieces of at most `size`."""
    return (items[first : first + size] for first in range(0, len(items), size))


def write_tags(client: MlflowClient, *, run_id: str, tags: Mapping[str, str]) -> None:
    """Set tags, under these very keys."""
    from mlflow.entities import RunTag

    items = [RunTag(key, naming.text(value, limit=naming.MAX_TAG_CHARACTERS)) for key, value in tags.items()]
    for batch in batches(items, size=MAX_PARAMS_PER_BATCH):
        client.log_batch(run_id, tags=batch, synchronous=True)


def write_params(client: MlflowClient, *, run: Run, values: Mapping[str, object]) -> None:
    """Set parameters, which are write-once: one that has changed becomes a tag `knockout.now.NAME`."""
    from mlflow.entities import Param

    wanted, known = naming.params(values), run.data.params
    items = [Param(key, value) for key, value in wanted.items() if key not in known]
    for batch in batches(items, size=MAX_PARAMS_PER_BATCH):
        client.log_batch(run.info.run_id, params=batch, synchronous=True)
    changed = {f"now.{key}": value for key, value in wanted.items() if known.get(key, value) != value}
    write_tags(client, run_id=run.info.run_id, tags=naming.tags(changed))


def write_points(
    client: MlflowClient, *, run_id: str, rows: Sequence[Row], start_milliseconds: int
) -> Iterator[Sequence[Row]]:
    """Write rows, a transaction for each batch; yields every batch once it is in the store."""
    from mlflow.entities import Metric

    for batch in batches(rows, size=MAX_METRICS_PER_BATCH):
        points = [
            Metric(row.metric, row.value, timestamp(row, start_milliseconds=start_milliseconds), row.step) for row in batch
        ]
        client.log_batch(run_id, metrics=points, synchronous=True)
        yield batch


def write_corpus(client: MlflowClient, *, run_id: str, corpus: Mapping[str, object]) -> None:
    """The corpus as a dataset input: `name`, `digest`, perhaps `source`; the rest is its profile."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    if not corpus:
        return
    dataset = Dataset(
        name=str(corpus["name"]),
        digest=str(corpus["digest"])[:MAX_DIGEST_CHARACTERS],
        source_type="local",
        source=json.dumps({"uri": str(corpus.get("source", corpus["name"]))}),
        profile=json.dumps({key: corpus[key] for key in corpus if key not in ("name", "source")}, default=str),
    )
    client.log_inputs(run_id, [DatasetInput(dataset, [InputTag("mlflow.data.context", "training")])])


def write_texts(client: MlflowClient, *, run_id: str, artifacts: Mapping[str, str]) -> None:
    """Put texts among the run's artifacts, by file name."""
    for name, text in artifacts.items():
        client.log_text(run_id, text, name)


def write_files(client: MlflowClient, *, run_id: str, artifacts: Mapping[str, Path]) -> None:
    """Copy files and folders to their names among the run's artifacts.

    Raises FileNotFoundError for those that are not there, after the others are written.
    """
    for name, path in artifacts.items():
        if path.is_dir():
            client.log_artifacts(run_id, str(path), name)
        elif path.exists():
            write_file(client, run_id=run_id, name=name, path=path)
    missing = [str(path) for path in artifacts.values() if not path.exists()]
    if missing:
        raise FileNotFoundError(f"not mirrored, because it is not there: {', '.join(missing)}")


def write_file(client: MlflowClient, *, run_id: str, name: str, path: Path) -> None:
    """Copy one file. MLflow takes the name from the file, so a link carries the wanted one."""
    target = Path(name)
    with tempfile.TemporaryDirectory() as folder:
        link = Path(folder) / target.name
        link.symlink_to(path.resolve())
        client.log_artifact(run_id, str(link), None if target.parent == Path() else str(target.parent))
