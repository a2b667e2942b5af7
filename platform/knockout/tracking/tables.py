"""Tables as MLflow's UI shows them: JSON with columns and rows, named in the run's list of tables.

The invariant: writing a table again replaces it (MLflow's own `log_table` would append).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlflow import MlflowClient

LOGGED_TABLES = "mlflow.loggedArtifacts"


def columns(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """Every key of the rows, in the order of first appearance."""
    return list(dict.fromkeys(key for row in rows for key in row))


def as_json(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows in the layout of `log_table` (pandas' "split"); a missing value is null."""
    names = columns(rows)
    return json.dumps({"columns": names, "data": [[row.get(name) for name in names] for row in rows]}, default=str)


def write_table(client: MlflowClient, *, run_id: str, name: str, rows: Sequence[Mapping[str, object]]) -> None:
    """Put a table at `name` (ending in .json) among a run's artifacts, and list it for the UI."""
    client.log_text(run_id, as_json(rows), name)
    listed = json.loads(client.get_run(run_id).data.tags.get(LOGGED_TABLES, "[]"))
    entry = {"path": name, "type": "table"}
    if entry not in listed:
        client.set_tag(run_id, LOGGED_TABLES, json.dumps([*listed, entry]))


def split_rows(split: Mapping[str, int]) -> list[dict[str, object]]:
    """A parameter split as a table: part, parameters, and its share of the sum."""
    total = sum(split.values())
    return [{"part": part, "parameters": n, "share": n / total if total else 0.0} for part, n in split.items()]
