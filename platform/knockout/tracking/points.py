"""The points that a run has in the store: whether they are another attempt's, and taking them out, which no client of
MLflow's can.

The invariant: only points go. The run, its parameters, tags and files stay, and what is dropped is dropped in one
transaction.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from knockout.tracking.curves import Row, timestamp

if TYPE_CHECKING:
    from mlflow import MlflowClient

FINAL = "final/"
"""What a run came to; the other points are its series, and its parameters by part."""
PARAMETERS = "parameters/"


class Point(NamedTuple):
    """One value of one metric, as the store has it."""

    metric: str
    step: int
    value: float
    milliseconds: int
    """Since the epoch."""


def points_of(rows: Iterable[Row], *, start_milliseconds: int) -> Iterator[Point]:
    """Rows as the store has them once they are written; those that it cannot hold are left out."""
    for row in rows:
        if math.isfinite(row.value):
            yield Point(row.metric, row.step, row.value, timestamp(row, start_milliseconds=start_milliseconds))


def read_points(client: MlflowClient, *, run_id: str) -> list[Point]:
    """Every point of a run."""
    from mlflow.store.tracking.dbmodels.models import SqlMetric

    columns = (SqlMetric.key, SqlMetric.step, SqlMetric.value, SqlMetric.timestamp)
    with client._tracking_client.store.ManagedSessionMaker() as session:
        return [Point(*row) for row in session.query(*columns).filter(SqlMetric.run_uuid == run_id)]


def of_another_attempt(shown: Iterable[Point], *, series: Collection[Point], finals: Collection[Point]) -> set[str]:
    """The metrics of a run that do not belong to what it came to.

    `shown` is what the store has, `series` all that is to be shown of the run's curves and `finals` its final values. A
    store that has only some of these is behind, and no more. One that has a point which is not among them has another
    attempt's, of which every curve and final value goes. Of a run without a series only final values are known to be right
    or wrong.
    """
    right, names = {*series, *finals}, {point.metric for point in series}
    there = list(shown)
    judged = [point for point in there if point.metric in names or point.metric.startswith(FINAL)]
    if right.issuperset(judged):
        return set()
    metrics = {point.metric for point in there if not point.metric.startswith(PARAMETERS)}
    return metrics if names else {metric for metric in metrics if metric.startswith(FINAL)}


def drop_points(client: MlflowClient, *, run_id: str, metrics: Collection[str]) -> None:
    """Take every point of some metrics out of a run, as if none had been written."""
    from mlflow.store.tracking.dbmodels.models import SqlLatestMetric, SqlMetric

    with client._tracking_client.store.ManagedSessionMaker(read_only=False) as session:
        for table in (SqlMetric, SqlLatestMetric):
            for metric in metrics:
                session.query(table).filter(table.run_uuid == run_id, table.key == metric).delete()
