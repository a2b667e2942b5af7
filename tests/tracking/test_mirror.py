"""What people see in MLflow after runs that ended well, badly, twice, or not at all."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from knockout.tracking.mirror import Mirror
from knockout.tracking.store import connect, tracking_uri

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

SPLIT = {"embedding": 32_768, "attention": 16_384, "ffn": 16_384}
QUESTION = "What do residual connections do for deep models?"


@pytest.fixture
def mirror(workspace: Path) -> Mirror:
    return Mirror(workspace)


@pytest.fixture
def client(workspace: Path) -> MlflowClient:
    return connect(workspace)


def submit(mirror: Mirror, *, submission: str = "residual-1") -> str:
    return mirror.open_submission(
        "residual",
        submission=submission,
        tags={"host": "here"},
        params={"seeds": 5, "question": QUESTION},
        artifacts={"study.yaml": "study: residual\n"},
    )


def start(mirror: Mirror, *, parent: str, identity: str = "0123456789abcdef", learning_rate: float = 3e-3) -> str:
    return mirror.open_run(
        parent,
        name="no-residual · nano · s3",
        identity=identity,
        tags={"variant": "no-residual", "size": "nano", "seed": 3},
        params={"depth": 16, "learning_rate": learning_rate},
        split=SPLIT,
        corpus={"name": "python-source", "digest": "f" * 64, "tokens": 2_000_000},
    )


def history(client: MlflowClient, run_id: str, metric: str) -> list[tuple[int, float]]:
    return sorted((point.step, point.value) for point in client.get_metric_history(run_id, metric))


def artifact(client: MlflowClient, run: Run, name: str) -> str:
    return Path(client.download_artifacts(run.info.run_id, name)).read_text()


def test_a_run_lies_under_its_submission_in_the_experiment_of_its_study(
    mirror: Mirror, client: MlflowClient, workspace: Path
) -> None:
    parent = submit(mirror)
    run = client.get_run(start(mirror, parent=parent))
    experiment = client.get_experiment_by_name("residual")

    assert experiment is not None
    assert run.info.experiment_id == experiment.experiment_id
    assert experiment.tags["mlflow.note.content"] == QUESTION
    assert run.info.run_name == "no-residual · nano · s3"
    assert run.info.status == "RUNNING"
    tags = run.data.tags
    assert tags["mlflow.parentRunId"] == parent
    assert {name: tags[f"knockout.{name}"] for name in ("study", "variant", "size", "seed", "role", "identity")} == {
        "study": "residual",
        "variant": "no-residual",
        "size": "nano",
        "seed": "3",
        "role": "run",
        "identity": "0123456789abcdef",
    }
    assert run.data.params == {"depth": "16", "learning_rate": "0.003"}
    assert str(run.info.artifact_uri).startswith((workspace / "mlflow" / "artifacts").as_uri())
    assert artifact(client, client.get_run(parent), "study.yaml") == "study: residual\n"


def test_the_parameter_split_is_metrics_and_a_table_and_the_corpus_a_dataset(mirror: Mirror, client: MlflowClient) -> None:
    run = client.get_run(start(mirror, parent=submit(mirror)))

    assert run.data.metrics == {f"parameters/{part}": float(n) for part, n in SPLIT.items()}
    table = json.loads(artifact(client, run, "parameters.json"))
    assert table["columns"] == ["part", "parameters", "share"]
    assert table["data"] == [["embedding", 32_768, 0.5], ["attention", 16_384, 0.25], ["ffn", 16_384, 0.25]]
    assert json.loads(run.data.tags["mlflow.loggedArtifacts"]) == [{"path": "parameters.json", "type": "table"}]
    assert run.inputs is not None
    (dataset,) = run.inputs.dataset_inputs
    assert (dataset.dataset.name, dataset.dataset.digest) == ("python-source", "f" * 36)
    assert json.loads(dataset.dataset.profile or "")["digest"] == "f" * 64


def test_mlflow_itself_reads_the_table(
    mirror: Mirror, client: MlflowClient, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = client.get_run(start(mirror, parent=submit(mirror)))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracking_uri(workspace))  # `load_table` has no other way to be told
    frame = client.load_table(run.info.experiment_id, "parameters.json", [run.info.run_id])
    assert list(frame["part"]) == list(SPLIT)


def test_a_process_killed_between_creation_and_record_does_not_double_a_run(workspace: Path, client: MlflowClient) -> None:
    first = Mirror(workspace)
    run_id = start(first, parent=submit(first))
    first.close_run(run_id, state="failed", reason="killed", final={}, artifacts={})

    second = Mirror(workspace)  # as a new process would, which knows nothing
    assert start(second, parent=submit(second)) == run_id
    assert client.get_run(run_id).info.status == "RUNNING"
    experiment = client.get_experiment_by_name("residual")
    assert experiment is not None
    assert len(client.search_runs([experiment.experiment_id])) == 2


def test_a_later_submission_goes_on_with_a_run_where_it_is_and_shows_what_changed(
    mirror: Mirror, client: MlflowClient
) -> None:
    first = submit(mirror)
    run_id = start(mirror, parent=first)
    later = submit(mirror, submission="residual-2")
    assert start(mirror, parent=later, learning_rate=1e-3) == run_id

    run = client.get_run(run_id)
    assert run.data.tags["mlflow.parentRunId"] == first
    assert run.data.params["learning_rate"] == "0.003"
    assert run.data.tags["knockout.now.learning_rate"] == "0.001"


def test_each_point_is_written_once_however_often_it_comes(workspace: Path, client: MlflowClient) -> None:
    rows = [("train_loss", step, 5.0 - step / 10, step * 0.5) for step in range(10)]
    first = Mirror(workspace)
    run_id = start(first, parent=submit(first))
    first.metrics(run_id, rows[:6])
    first.metrics(run_id, rows[3:8])

    again = Mirror(workspace)
    again.metrics(run_id, [(metric, step, value + 1.0, time + 9.0) for metric, step, value, time in rows[:7]])
    again.metrics(run_id, rows)

    assert history(client, run_id, "train_loss") == [(step, 5.0 - step / 10) for step in range(10)]


ATTEMPTS = [
    [
        row
        for step in range(1, 41)
        for row in (("train_loss", step, 5.0 - step, step + off), ("speed", step, rate, step + off))
    ]
    for off, rate in ((0.0, 100.0), (70.0, 90.0))
]
"""The same losses at other times and another speed."""


def finish(mirror: Mirror, run_id: str, *, rows: list[tuple[str, int, float, float]], speed: float) -> None:
    mirror.close_run(run_id, state="done", reason="", final={"speed": speed}, artifacts={}, series=rows, planned_steps=40)


@pytest.mark.parametrize("held_back", [0, 15], ids=["complete", "the first attempt came half way"])
def test_a_second_attempt_takes_the_place_of_the_first(workspace: Path, client: MlflowClient, held_back: int) -> None:
    first = Mirror(workspace)
    run_id = start(first, parent=submit(first))
    first.metrics(run_id, [*ATTEMPTS[0][: 80 - 2 * held_back], ("val_loss", 39, math.nan, 39.0), ("old", 3, 1.0, 0.0)])
    first.close_run(run_id, state="diverged", reason="", final={"speed": 100.0, "old": 1.0}, artifacts={})

    second = Mirror(workspace)
    assert start(second, parent=submit(second)) == run_id
    second.metrics(run_id, ATTEMPTS[1][:50], planned_steps=40)
    for _ in range(2):
        finish(second, run_id, rows=ATTEMPTS[1], speed=90.0)

    assert history(client, run_id, "train_loss") == [(step, 5.0 - step) for step in range(1, 41)]
    assert history(client, run_id, "speed") == [(step, 90.0) for step in range(1, 41)]
    began = client.get_run(run_id).info.start_time
    stamps = {point.step: point.timestamp for point in client.get_metric_history(run_id, "train_loss")}
    assert stamps == {step: began + 1000 * (step + 70) for step in range(1, 41)}
    run = client.get_run(run_id)
    parts = {f"parameters/{part}": float(n) for part, n in SPLIT.items()}
    assert run.data.metrics == {**parts, "train_loss": -35.0, "speed": 90.0, "final/speed": 90.0}
    assert "knockout.diverged" not in run.data.tags


def test_a_run_that_mlflow_lacks_points_of_is_completed_and_nothing_of_it_is_dropped(
    workspace: Path, client: MlflowClient
) -> None:
    mirror = Mirror(workspace)
    run_id = start(mirror, parent=submit(mirror))
    mirror.metrics(run_id, ATTEMPTS[0][:50], planned_steps=40)
    client.log_metric(run_id, "by_hand", 7.0)
    finish(mirror, run_id, rows=ATTEMPTS[0], speed=100.0)

    assert history(client, run_id, "speed") == [(step, 100.0) for step in range(1, 41)]
    assert client.get_run(run_id).data.metrics["by_hand"] == 7.0


def test_of_a_run_whose_files_are_elsewhere_only_final_values_are_replaced(workspace: Path, client: MlflowClient) -> None:
    mirror = Mirror(workspace)
    run_id = start(mirror, parent=submit(mirror))
    mirror.metrics(run_id, ATTEMPTS[0])
    mirror.close_run(run_id, state="done", reason="", final={"speed": 100.0, "old": 1.0}, artifacts={})
    mirror.close_run(run_id, state="done", reason="", final={"speed": 90.0}, artifacts={})

    assert history(client, run_id, "speed") == [(step, 100.0) for step in range(1, 41)]
    assert history(client, run_id, "final/speed") == [(0, 90.0)]
    assert history(client, run_id, "final/old") == []


def test_points_carry_the_time_of_the_run_and_not_of_the_writing(mirror: Mirror, client: MlflowClient) -> None:
    run_id = start(mirror, parent=submit(mirror))
    mirror.metrics(run_id, [("train_loss", 1, 3.0, 0.25), ("train_loss", 2, 2.5, 1_760_000_000.5)])

    began = client.get_run(run_id).info.start_time
    stamps = {point.step: point.timestamp for point in client.get_metric_history(run_id, "train_loss")}
    assert stamps == {1: began + 250, 2: 1_760_000_000_500}


def test_a_long_curve_is_thinned_but_keeps_its_last_point_and_every_evaluation(mirror: Mirror, client: MlflowClient) -> None:
    run_id = start(mirror, parent=submit(mirror))
    for first in range(1, 5_001, 700):
        steps = range(first, min(first + 700, 5_001))
        rows = [("train_loss", step, 1.0, float(step)) for step in steps]
        rows += [("val_loss", step, 1.0, float(step)) for step in steps if step % 3 == 0]
        mirror.metrics(run_id, rows, planned_steps=5_000)
    mirror.close_run(run_id, state="done", reason="", final={"val_loss": 1.0}, artifacts={})

    train = [step for step, _ in history(client, run_id, "train_loss")]
    assert len(train) <= 1_001
    assert train[:3] == [1, 6, 11]
    assert train[-1] == 5_000
    assert [step for step, _ in history(client, run_id, "val_loss")] == list(range(3, 5_001, 3))


def test_a_run_that_was_stopped_and_went_on_is_shown_as_one_that_was_not(mirror: Mirror, client: MlflowClient) -> None:
    """The last step before a stop is shown while nobody goes on; in the end the steps are the same, whatever the cuts."""
    series = [("train_loss", step, 5.0 / step, float(step)) for step in range(1, 3_001)]
    whole = start(mirror, parent=submit(mirror), identity="1" * 20)
    mirror.close_run(whole, state="done", reason="", final={}, artifacts={}, series=series, planned_steps=3_000)
    cut = start(mirror, parent=submit(mirror), identity="2" * 20)
    for end in (501, 1_000, 1_703):
        mirror.metrics(cut, series[:end], planned_steps=3_000)
        mirror.close_run(cut, state="cancelled", reason="", final={}, artifacts={})
        assert history(client, cut, "train_loss")[-1][0] == end
        assert start(mirror, parent=submit(mirror), identity="2" * 20) == cut
    mirror.close_run(cut, state="done", reason="", final={}, artifacts={}, series=series, planned_steps=3_000)
    assert history(client, cut, "train_loss") == history(client, whole, "train_loss")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_diverged_run_is_finished_and_tagged_and_holds_no_impossible_number(
    mirror: Mirror, client: MlflowClient, value: float
) -> None:
    run_id = start(mirror, parent=submit(mirror))
    mirror.metrics(run_id, [("train_loss", 1, 4.0, 0.1), ("train_loss", 2, value, 0.2)])
    mirror.close_run(run_id, state="diverged", reason="loss at step 2", final={"val_loss": value}, artifacts={})

    run = client.get_run(run_id)
    assert run.info.status == "FINISHED"
    assert run.data.tags["knockout.state"] == "diverged"
    assert run.data.tags["knockout.diverged"] == f"train_loss is {value} at step 2"
    assert history(client, run_id, "train_loss") == [(1, 4.0)]
    assert "final/val_loss" not in run.data.metrics


@pytest.mark.parametrize(
    ("state", "status"),
    [("done", "FINISHED"), ("pruned", "KILLED"), ("failed", "FAILED"), ("cancelled", "KILLED"), ("timed-out", "KILLED")],
)
def test_the_end_of_a_run_is_told_in_mlflows_words_and_ours(
    mirror: Mirror, client: MlflowClient, tmp_path: Path, state: str, status: str
) -> None:
    (tmp_path / "spec.json").write_text("{}")
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots" / "loss.svg").write_text("<svg/>")
    run_id = start(mirror, parent=submit(mirror))
    files = {"run/canonical.json": tmp_path / "spec.json", "plots": tmp_path / "plots"}
    mirror.close_run(run_id, state=state, reason="because", final={"val_loss": 3.25}, artifacts=files)  # type: ignore[arg-type]

    run = client.get_run(run_id)
    assert (run.info.status, run.data.tags["knockout.state"]) == (status, state)
    assert run.data.tags["knockout.reason"] == "because"
    assert run.data.metrics["final/val_loss"] == 3.25
    assert artifact(client, run, "run/canonical.json") == "{}"
    assert artifact(client, run, "plots/loss.svg") == "<svg/>"


def test_a_missing_file_is_told_after_the_run_is_closed(mirror: Mirror, client: MlflowClient, tmp_path: Path) -> None:
    run_id = start(mirror, parent=submit(mirror))
    with pytest.raises(FileNotFoundError, match=r"nothing\.png"):
        mirror.close_run(run_id, state="done", reason="", final={}, artifacts={"a": tmp_path / "nothing.png"})
    assert client.get_run(run_id).info.status == "FINISHED"


def test_verdicts_are_a_table_and_tags_however_often_they_are_written(
    mirror: Mirror, client: MlflowClient, tmp_path: Path
) -> None:
    verdicts = [
        {"claim": "T7.1-residual", "size": "nano", "outcome": "supported", "effect": 1.9, "low": 1.7, "high": 2.1},
        {"claim": "control", "outcome": "inconclusive", "seeds_needed": 4},
    ]
    (tmp_path / "report.html").write_text("<h1>residual</h1>")
    parent = submit(mirror)
    for _ in range(2):
        mirror.close_submission(parent, state="done", verdicts=verdicts, report=tmp_path / "report.html")

    run = client.get_run(parent)
    assert run.info.status == "FINISHED"
    assert run.data.tags["knockout.verdict.T7.1-residual.nano"] == "supported"
    assert run.data.tags["knockout.verdict.control"] == "inconclusive"
    table = json.loads(artifact(client, run, "verdicts.json"))
    assert table["columns"] == ["claim", "size", "outcome", "effect", "low", "high", "seeds_needed"]
    assert table["data"][1] == ["control", None, "inconclusive", None, None, None, 4]
    assert len(json.loads(run.data.tags["mlflow.loggedArtifacts"])) == 1
    assert artifact(client, run, "report.html") == "<h1>residual</h1>"


def test_another_programs_active_run_and_environment_change_nothing(
    mirror: Mirror, client: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = submit(mirror)
    monkeypatch.setenv("MLFLOW_RUN_ID", parent)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "elsewhere")
    run_id = start(mirror, parent=parent)
    assert run_id != parent
    assert client.get_run(run_id).data.tags["mlflow.parentRunId"] == parent


def test_an_experiment_deleted_by_hand_is_used_again(mirror: Mirror, client: MlflowClient) -> None:
    submit(mirror)
    experiment = client.get_experiment_by_name("residual")
    assert experiment is not None
    client.delete_experiment(experiment.experiment_id)
    submit(mirror)
    assert client.get_experiment(experiment.experiment_id).lifecycle_stage == "active"


def test_long_values_that_differ_at_the_end_look_different(mirror: Mirror, client: MlflowClient) -> None:
    values = {"one": "x" * 9_000 + "1", "two": "x" * 9_000 + "2", "odd[name]": None}
    parent = mirror.open_submission("long", submission="long-1", tags=values, params=values, artifacts={})
    run = client.get_run(parent)
    assert run.data.params["one"] != run.data.params["two"]
    assert run.data.tags["knockout.one"] != run.data.tags["knockout.two"]
    assert run.data.params["odd_name_"] == "null"
