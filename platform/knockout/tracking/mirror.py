"""The mirror to MLflow: what the ledger and the run folders hold, written where people look at it.

    experiment = study ── parent run = submission ── child run = cell × seed, `no-residual · nano · s3`

The invariant: everything may be said twice. A run is found again by its identity, a (metric, step) is written
once, tables and artifacts are replaced, and at the end of a run so are the points of another attempt at it, so that
a process killed at any point is made good by saying it all again. Runs are addressed by id only; MLflow's active run,
which belongs to a thread, is never used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from knockout.services.locks import locked
from knockout.tracking import naming
from knockout.tracking.curves import Row, Selection, select
from knockout.tracking.points import FINAL, drop_points, of_another_attempt, points_of, read_points
from knockout.tracking.runs import RunState, find_run, read_state, study_experiment
from knockout.tracking.store import LOCK_TIMEOUT_SECONDS, connect, folder
from knockout.tracking.tables import split_rows, write_table
from knockout.tracking.writes import (
    write_corpus,
    write_files,
    write_params,
    write_points,
    write_tags,
    write_texts,
)

if TYPE_CHECKING:
    from mlflow.entities import Run


class Mirror:
    """Writes to a workspace's MLflow store, from one thread. Every call may be made again."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._client = connect(workspace)
        self._states: dict[str, RunState] = {}

    def open_submission(
        self,
        study: str,
        *,
        submission: str,
        tags: Mapping[str, object],
        params: Mapping[str, object],
        artifacts: Mapping[str, str],
    ) -> str:
        """The parent run of a submission, in the experiment of its study, which the parameter `question` describes.

        `artifacts` maps file names to text. Returns the run's id.
        """
        experiment = study_experiment(self._client, workspace=self._workspace, study=study)
        if "question" in params:
            question = naming.text(params["question"], limit=naming.MAX_TAG_CHARACTERS)
            self._client.set_experiment_tag(experiment, naming.DESCRIPTION, question)
        own = {"study": study, "submission": submission, "role": "submission"}
        run = self._open(experiment, key=naming.SUBMISSION, name=submission, tags=naming.tags({**tags, **own}))
        write_params(self._client, run=run, values=params)
        write_texts(self._client, run_id=run.info.run_id, artifacts=artifacts)
        return run.info.run_id

    def open_run(
        self,
        parent: str,
        *,
        name: str,
        identity: str,
        tags: Mapping[str, object],
        params: Mapping[str, object],
        split: Mapping[str, int],
        corpus: Mapping[str, object],
        artifacts: Mapping[str, str] | None = None,
    ) -> str:
        """The child run of an identity, under a submission's run; a run of this identity is taken up again.

        `split` holds parameters by part. `corpus` has `name` and `digest`, and may have `source` (an
        address); the rest of it is its profile. `artifacts` maps file names to text. Returns the run's id.
        """
        above = self._client.get_run(parent)
        study = above.data.tags.get(naming.tag_key("study"), "")
        own = naming.tags({"study": study, "role": "run", **tags, "identity": identity})
        all_tags = {**own, naming.PARENT: parent}
        run = self._open(above.info.experiment_id, key=naming.IDENTITY, name=name, tags=all_tags)
        run_id = run.info.run_id
        write_params(self._client, run=run, values=params)
        self.metrics(run_id, [(f"parameters/{part}", 0, float(n), 0.0) for part, n in split.items()])
        if split:
            write_table(self._client, run_id=run_id, name="parameters.json", rows=split_rows(split))
        write_corpus(self._client, run_id=run_id, corpus=corpus)
        write_texts(self._client, run_id=run_id, artifacts=artifacts or {})
        return run_id

    def metrics(
        self,
        run_id: str,
        rows: Iterable[tuple[str, int, float, float]],
        *,
        planned_steps: int | None = None,
    ) -> None:
        """Write rows of (metric, step, value, seconds), each (metric, step) once; thinned as `curves.select`
        says.

        While a run goes on, `planned_steps` fixes the thinning and the last rows wait for `close_run`;
        without it the rows are all that there is. A NaN or infinite value is not written: the run gets the
        tag `knockout.diverged`.
        """
        state = self._state(run_id)
        self._send(run_id, select(_named(rows), marks=state.marks, planned_steps=planned_steps), state=state)

    def close_run(
        self,
        run_id: str,
        *,
        state: naming.State,
        reason: str,
        final: Mapping[str, float],
        artifacts: Mapping[str, Path],
        series: Iterable[tuple[str, int, float, float]] = (),
        planned_steps: int | None = None,
    ) -> None:
        """End a run: its last rows, `final/…` values, tags, status, then files (name -> file or folder).

        `series` are all the rows of a run that has a result, thinned as `metrics` does; without it, what `metrics` was given
        stands. Points that the store has of another attempt are dropped, and those of this one written in full.

        done and diverged become FINISHED, failed FAILED; pruned, cancelled and timed-out KILLED. Raises
        FileNotFoundError for an artifact that is not there, after the rest is written.
        """
        rows = _named(series)
        finals = _named((f"{FINAL}{name}", 0, value, 0.0) for name, value in final.items())
        whole = select(rows, marks={}, planned_steps=planned_steps)
        known = self._only_this_attempt(run_id, series=[*whole.send, *whole.held.values()], finals=finals)
        self._send(run_id, select(rows, marks=known.marks, planned_steps=planned_steps), state=known)
        self._send(run_id, Selection(tuple(known.held.values()), {}, None), state=known)
        self._send(run_id, select(finals, marks=known.marks, planned_steps=None), state=known)
        told = {naming.STATE: state, naming.REASON: reason}
        if state == "diverged" and not known.diverged:
            told[naming.DIVERGED] = reason or "yes"
        self._end(run_id, state=state, tags=told)
        write_files(self._client, run_id=run_id, artifacts=artifacts)

    def close_submission(
        self,
        parent: str,
        *,
        state: naming.State,
        verdicts: Sequence[Mapping[str, object]],
        report: Path | None,
        tags: Mapping[str, object] | None = None,
    ) -> None:
        """End a submission: verdicts as a table and as tags, more `tags`, the report as an artifact.

        A verdict is a row with `claim` (its id), `outcome`, perhaps `size`, and whatever else the table shall
        show; its tag is `knockout.verdict.CLAIM` or `knockout.verdict.CLAIM.SIZE`.
        """
        if verdicts:
            write_table(self._client, run_id=parent, name="verdicts.json", rows=verdicts)
        told = verdict_tags(verdicts)
        self._end(parent, state=state, tags=naming.tags({**(tags or {}), **told, "state": state}))
        if report is not None:
            write_files(self._client, run_id=parent, artifacts={report.name: report})

    def _open(self, experiment: str, *, key: str, name: str, tags: Mapping[str, str]) -> Run:
        """Find the run by its tag `key` and set it RUNNING, or create it with all its tags in one step.

        A run that is found stays under the submission that trained it first.
        """
        found = find_run(self._client, experiment=experiment, key=key, value=tags[key])
        if found is None:
            with locked(folder(self._workspace) / "opening.lock", timeout_seconds=LOCK_TIMEOUT_SECONDS):
                found = find_run(self._client, experiment=experiment, key=key, value=tags[key])
                if found is None:  # else another process was quicker
                    run = self._client.create_run(experiment, run_name=name, tags=dict(tags))
                    self._states[run.info.run_id] = RunState(start_milliseconds=run.info.start_time)
                    return run
        self._client.update_run(found.info.run_id, status="RUNNING", name=name)
        kept = {name: value for name, value in tags.items() if name != naming.PARENT}
        write_tags(self._client, run_id=found.info.run_id, tags=kept)
        return found

    def _end(self, run_id: str, *, state: naming.State, tags: Mapping[str, str]) -> None:
        write_tags(self._client, run_id=run_id, tags=tags)
        self._client.set_terminated(run_id, status=naming.STATUS[state])
        self._states.pop(run_id, None)

    def _state(self, run_id: str) -> RunState:
        if run_id not in self._states:
            self._states[run_id] = read_state(self._client, run_id=run_id)
        return self._states[run_id]

    def _only_this_attempt(self, run_id: str, *, series: Sequence[Row], finals: Sequence[Row]) -> RunState:
        """What is known of a run once no point is left that it has from another attempt, or from where one was cut off."""
        known = self._state(run_id)
        start = known.start_milliseconds
        wrong = of_another_attempt(
            read_points(self._client, run_id=run_id),
            series=set(points_of(series, start_milliseconds=start)),
            finals=set(points_of(finals, start_milliseconds=start)),
        )
        if wrong:
            del self._states[run_id]
            drop_points(self._client, run_id=run_id, metrics=wrong)
            if known.diverged:
                self._client.delete_tag(run_id, naming.DIVERGED)
        return self._state(run_id)

    def _send(self, run_id: str, chosen: Selection, *, state: RunState) -> None:
        start = state.start_milliseconds
        for batch in write_points(self._client, run_id=run_id, rows=chosen.send, start_milliseconds=start):
            state.sent(batch)
        state.hold(chosen.held)
        if (row := chosen.non_finite) is not None and not state.diverged:
            diverged = {naming.DIVERGED: f"{row.metric} is {row.value} at step {row.step}"}
            write_tags(self._client, run_id=run_id, tags=diverged)
            state.diverged = True


def _named(rows: Iterable[tuple[str, int, float, float]]) -> list[Row]:
    """Rows under names that MLflow takes."""
    return [Row(naming.allowed(metric), step, value, seconds) for metric, step, value, seconds in rows]


def verdict_tags(verdicts: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """The outcome of every verdict, by claim and, where there is one, size."""
    return {
        ".".join(["verdict", *(str(row[key]) for key in ("claim", "size") if row.get(key))]): row["outcome"]
        for row in verdicts
        if {"claim", "outcome"} <= row.keys()
    }
