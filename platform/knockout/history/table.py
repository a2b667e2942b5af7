"""The history of a workspace: one Parquet file for each sweep of a study, `history/*.parquet`, read as one table.

The invariant: a file is written once, whole, and never changed; so appending is making a file.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from knockout.history.rows import Row
from knockout.ledger.workspace import Workspace, make_folder, write_atomically

if TYPE_CHECKING:
    import polars as pl

FOLDER = "history"


def append(rows: Sequence[Row], *, workspace: Workspace) -> None:
    """Add the rows of one sweep of a study. Raises WorkspaceError."""
    if not rows:
        return
    buffer = io.BytesIO()
    _frame(rows).write_parquet(buffer)
    when = datetime.fromtimestamp(rows[0].time, UTC).strftime("%Y%m%d-%H%M%S")
    folder = workspace.folder / FOLDER
    make_folder(folder)
    write_atomically(folder / f"{when}-{rows[0].study}-{uuid.uuid4().hex[:6]}.parquet", data=buffer.getvalue())


def read(workspace: Workspace, *, study: str | None = None) -> list[Row]:
    """The rows of a study's sweeps, or of all, oldest first."""
    import polars as pl  # 0.14 s, which a command that only appends nothing need not wait for

    if not any((workspace.folder / FOLDER).glob("*.parquet")):
        return []
    table = pl.scan_parquet(str(workspace.folder / FOLDER / "*.parquet"))
    if study is not None:
        table = table.filter(pl.col("study") == study)
    return [_row(data) for data in table.sort("time", maintain_order=True).collect().to_dicts()]


def _row(data: dict[str, object]) -> Row:
    time = data.pop("time")
    assert isinstance(time, datetime)
    return Row(time=time.timestamp(), **data)  # pyright: ignore[reportArgumentType]  # the columns are the fields


def _frame(rows: Sequence[Row]) -> pl.DataFrame:
    import polars as pl

    columns = {field.name: _COLUMNS.get(field.name, "String") for field in fields(Row)}
    schema = {name: getattr(pl, kind) for name, kind in columns.items()}
    made = pl.DataFrame([asdict(row) for row in rows], schema=schema, orient="row")
    return made.with_columns(pl.from_epoch(pl.col("time") * 1e6, time_unit="us").dt.replace_time_zone("UTC"))


_COLUMNS = {"time": "Float64", "mean": "Float64", "sd": "Float64", "num_seeds": "Int64", "first_seed": "Int64"}
