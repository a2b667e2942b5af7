"""Finding experiments and runs in the store, and what has been written to a run already.

The invariant: MLflow is the memory. What a `RunState` holds can be read back from the store at any time,
except for rows that wait to be sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from knockout.tracking import naming
from knockout.tracking.curves import Row
from knockout.tracking.store import artifact_location

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}
"""Without it the UI takes the experiment for one about agents, and shows traces and prompts first."""


@dataclass
class RunState:
    """What is known of a run that is written to."""

    start_milliseconds: int
    marks: dict[str, int] = field(default_factory=dict)
    """The last step written of each metric."""
    held: dict[str, Row] = field(default_factory=dict)
    """The newest row of a metric that thinning keeps back until the run ends."""
    diverged: bool = False
    """Whether the run has its tag of divergence."""

    def sent(self, rows: Iterable[Row]) -> None:
        """Note what has been written."""
        for row in rows:
            self.marks[row.metric] = max(row.step, self.marks.get(row.metric, row.step))
        self.held = {name: row for name, row in self.held.items() if row.step > self.marks.get(name, -1)}

    def hold(self, rows: Mapping[str, Row]) -> None:
        """Keep rows for later."""
        self.held.update(rows)


def study_experiment(client: MlflowClient, *, workspace: Path, study: str) -> str:
    """The id of a study's experiment, created with its artifacts in the workspace.

    An experiment that was deleted in the UI keeps its name, so it is restored.
    """
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(study)
    if found is None:
        try:
            place = artifact_location(workspace, experiment=study)
            return client.create_experiment(study, place, tags=EXPERIMENT_TAGS)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            found = client.get_experiment_by_name(study)  # another process was quicker
            if found is None:
                raise
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    return found.experiment_id


def find_run(client: MlflowClient, *, experiment: str, key: str, value: str) -> Run | None:
    """The oldest run of an experiment with this tag, or None."""
    found = client.search_runs(
        [experiment], naming.equals(key, value), max_results=1, order_by=["attributes.start_time ASC"]
    )
    return found[0] if found else None


def read_state(client: MlflowClient, *, run_id: str) -> RunState:
    """What has been written to a run, from the store."""
    run = client.get_run(run_id)
    marks = {key: max(point.step for point in client.get_metric_history(run_id, key)) for key in run.data.metrics}
    return RunState(
        start_milliseconds=run.info.start_time,
        marks=marks,
        diverged=naming.DIVERGED in run.data.tags,
    )
