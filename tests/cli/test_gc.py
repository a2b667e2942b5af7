"""`knockout gc`: what nobody needs goes from ledger, files and MLflow alike; what a report cites stays."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from commands import ALONE
from sqlalchemy import event

from knockout.errors import InputError, RunError, WorkspaceError
from knockout.ledger.process import Owner, this_process
from knockout.ledger.store import Ledger
from knockout.ledger.workspace import Workspace, open_workspace
from knockout.tracking.removal import Remover
from knockout.tracking.store import connect
from knockout.training.result import read_result
from knockout.training.trained import load_network
from knockout.upkeep.doctor import Diagnosis, diagnose, repair
from knockout.upkeep.measures import num_bytes, seconds, shown_age, shown_bytes
from knockout.upkeep.sweeping import Candidate, Wanted, candidates, staying, sweep

DAY = 86_400.0


def rows(database: Path, query: str, *values: object) -> list[tuple]:
    with closing(sqlite3.connect(database)) as connection:
        found = connection.execute(query, values).fetchall()
        connection.commit()
    return found


@pytest.fixture
def place(finished, tmp_path: Path) -> Workspace:
    """A copy of the finished workspace in which only the study `small` still has its report."""
    shutil.copytree(finished.folder, tmp_path / "home", symlinks=True)
    workspace = open_workspace(tmp_path / "home")
    list(repair(diagnose(workspace), workspace=workspace))
    rows(workspace.ledger, "UPDATE submissions SET facts = NULL WHERE study = 'other'")
    shutil.rmtree(workspace.folder / "reports" / "other")
    assert diagnose(workspace) == Diagnosis((), ())
    return workspace


@pytest.fixture
def uncited(place: Workspace) -> str:
    """The run that only `other` asked for; the baseline is `small`'s too."""
    ((identity,),) = rows(place.ledger, "SELECT identity FROM asks WHERE variant = 'no-norm'")
    return identity


def choose(place: Workspace, wanted: Wanted = Wanted()) -> list[Candidate]:  # noqa: B008  # frozen
    ledger = Ledger(place)
    try:
        return candidates(ledger, wanted=wanted, remover=Remover(place.folder))
    finally:
        ledger.close()


def collect(place: Workspace, wanted: Wanted = Wanted()) -> list[Candidate]:  # noqa: B008
    ledger, remover = Ledger(place), Remover(place.folder)
    try:
        return list(sweep(ledger, chosen=candidates(ledger, wanted=wanted, remover=remover), remover=remover))
    finally:
        ledger.close()


def names(found: list[Candidate]) -> list[tuple[str, str]]:
    return [(one.kind, one.name) for one in found]


def shown_in_mlflow(place: Workspace) -> set[str]:
    query = "SELECT value FROM tags WHERE key = 'knockout.identity'"
    return {value for (value,) in rows(place.folder / "mlflow" / "mlflow.db", query)}


def known(place: Workspace) -> set[str]:
    return {name for (name,) in rows(place.ledger, "SELECT identity FROM runs")}


def test_a_run_that_no_report_cites_goes_everywhere_and_is_trained_again_when_asked_for(
    place: Workspace, uncited: str, finished
):
    folder, home = place.run(uncited), ["--workspace", str(place.folder)]
    result, cited = read_result(folder), known(place) - {uncited}
    assert result is not None
    code, said = finished.here("gc", *home)
    assert (code, f"run        {uncited}" in said, "1 may go" in said) == (0, True, True), said
    assert result == read_result(folder)

    code, said = finished.knockout("gc", "--yes", *home)
    assert (code, "deleted 1" in said) == (0, True), said
    assert known(place) == shown_in_mlflow(place) == {path.name for path in (place.folder / "runs").iterdir()} == cited
    artifacts = [path.name for path in (place.folder / "mlflow" / "artifacts" / "other").iterdir()]
    assert len(artifacts) == 2  # the submission and the baseline
    assert diagnose(place) == Diagnosis((), ())

    code, said = finished.knockout("run", "other", "--no-prefect", *home)
    assert code == 0, said
    again = read_result(folder)
    assert again is not None
    measured = {name: value for name, value in result["metrics"].items() if "loss" in name or name == "bits_per_byte"}
    assert measured.items() <= again["metrics"].items()
    assert shown_in_mlflow(place) == {*cited, uncited}
    assert rows(place.ledger, "SELECT attempts FROM runs WHERE identity = ?", uncited) == [(1,)]


def test_what_a_report_cites_stays_whatever_is_asked(place: Workspace, uncited: str):
    wanted = Wanted(states=("done",))
    assert names(choose(place, wanted)) == [("run", uncited)]
    rows(place.ledger, "UPDATE submissions SET facts = '{\"study\": {}, \"runs\": []}' WHERE study = 'small'")
    assert {name for _, name in names(choose(place, wanted))} == known(place)


def test_a_run_in_work_or_asked_for_by_a_running_study_stays(place: Workspace, uncited: str):
    ledger = Ledger(place)
    ledger.reopen(uncited, reason="x")
    ledger.claim(uncited, owner=this_process())
    failed = Wanted(states=("failed",))
    assert names(choose(place, failed)) == []
    ledger.finish(uncited, owner=this_process(), state="failed", reason="x", step=0, seconds=1.0, metrics={})
    assert names(choose(place, failed)) == [("run", uncited)]
    before = choose(place, failed)
    ask = {"variant": "v", "size": "pico", "seed": 0, "role": "judged", "planned_steps": 1, "flops": 1.0, "meaning": {}}
    ledger.submit("now", study="x", plan="", owner=this_process(), runs=[{**ask, "identity": uncited}])
    assert names(choose(place, failed)) == []
    assert list(sweep(ledger, chosen=before, remover=Remover(place.folder))) == [], "asked for between choosing and taking"
    assert place.run(uncited).exists()
    ledger.close()


def stopped(place: Workspace, identity: str, *, seconds_ago: float, state: str = "cancelled") -> Path:
    """Make a run one that was stopped on its way; its checkpoint."""
    (place.run(identity) / "result.json").unlink()
    checkpoint = place.run(identity) / "checkpoints" / "0000000020.pt"
    checkpoint.parent.mkdir(exist_ok=True)
    (place.run(identity) / "weights.pt").rename(checkpoint)
    query = "UPDATE runs SET state = ?, finished = ? WHERE identity = ?"
    rows(place.ledger, query, state, time.time() - seconds_ago, identity)
    return checkpoint


@pytest.mark.parametrize("weights", [(), ("--weights",)])
def test_a_run_that_was_just_stopped_stays_unless_its_state_or_an_age_is_named(
    place: Workspace, uncited: str, finished, weights: tuple[str, ...]
):
    checkpoint, home = stopped(place, uncited, seconds_ago=10.0), [*weights, "--workspace", str(place.folder)]
    code, said = finished.here("gc", "--yes", *home)
    assert (code, uncited in said, "1 unfinished run stays, younger than a day" in said) == (0, False, True), said
    assert checkpoint.exists()
    for named in (("--state", "cancelled"), ("--older-than", "5s")):
        code, said = finished.here("gc", *named, *home)
        (line,) = (line for line in said.splitlines() if uncited in line)
        assert (code, line.endswith("unfinished: its checkpoints go"), "unfinished run stays" in said) == (0, True, False), (
            said
        )
    code, said = finished.here("gc", "--state", "cancelled", "--yes", *home)
    assert (code, "deleted 1" in said, checkpoint.exists()) == (0, True, False), said


@pytest.mark.parametrize(
    ("state", "seconds_ago", "stays"),
    [
        ("cancelled", 0.9 * DAY, True),
        ("cancelled", 1.1 * DAY, False),
        ("failed", 10.0, True),
        ("timed-out", 10.0, True),
        ("planned", 10.0, True),
        ("pruned", 10.0, False),
        ("done", 10.0, False),
    ],
)
def test_what_nobody_goes_on_with_is_not_spared(place: Workspace, uncited: str, state: str, seconds_ago: float, stays: bool):
    stopped(place, uncited, seconds_ago=seconds_ago, state=state)
    assert [one.name for one in choose(place)] == ([] if stays else [uncited])
    ledger = Ledger(place)
    assert staying(ledger, wanted=Wanted()).young == stays
    ledger.close()


@pytest.mark.parametrize("name", ["optuna.db", "mlflow/mlflow.db"])
def test_a_damaged_database_is_told_in_a_sentence_and_nothing_goes(place: Workspace, uncited: str, finished, name: str):
    for beside in ("-wal", "-shm"):
        (place.folder / f"{name}{beside}").unlink(missing_ok=True)
    (place.folder / name).write_text("garbage-garbage\n")
    code, said = finished.here("gc", "--yes", "--workspace", str(place.folder))
    assert (code, "Traceback" in said) == (2, False), said
    assert f"{place.folder / name} is damaged (file is not a database): `knockout doctor --repair`" in said
    assert place.run(uncited).exists()


def test_age_size_and_state_choose(place: Workspace, uncited: str):
    rows(place.ledger, "UPDATE runs SET finished = ?, state = 'failed' WHERE identity = ?", time.time() - 40 * DAY, uncited)
    (one,) = choose(place)
    assert one.num_bytes > read_size(place.run(uncited)) / 2
    for wanted, fits in (
        (Wanted(older_than_seconds=39 * DAY), True),
        (Wanted(older_than_seconds=41 * DAY), False),
        (Wanted(larger_than_bytes=one.num_bytes - 1), True),
        (Wanted(larger_than_bytes=one.num_bytes), False),
        (Wanted(states=("failed", "pruned")), True),
        (Wanted(states=("cancelled",)), False),
    ):
        assert names(choose(place, wanted)) == ([("run", uncited)] if fits else []), wanted
    with pytest.raises(InputError, match="no run is ever 'gone'"):
        Wanted(states=("gone",))


def read_size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_weights_alone_go_and_the_result_stays_sealed(place: Workspace, uncited: str):
    folder = place.run(uncited)
    before = read_result(folder)
    assert names(collect(place, Wanted(weights_only=True))) == [("weights", uncited)]
    after = read_result(folder)
    assert before is not None
    assert after is not None
    assert after["metrics"] == before["metrics"]
    assert not (folder / "weights.pt").exists()
    assert (folder / "metrics.parquet").exists()
    assert diagnose(place) == Diagnosis((), ())
    with pytest.raises(RunError, match="`knockout gc --weights` removed them"):
        load_network(folder)
    assert choose(place, Wanted(weights_only=True)) == []


def test_results_that_an_earlier_ledger_knew_of_stay_until_a_study_has_asked_for_them(
    place: Workspace, uncited: str, finished
):
    home, results = ["--workspace", str(place.folder)], {path.name for path in (place.folder / "runs").iterdir()}
    for path in place.folder.glob("ledger.db*"):
        path.unlink()
    code, said = finished.here("doctor", "--repair", *home)
    assert (code, "orphan report" in said) == (0, False), said
    assert (place.folder / "reports" / "small" / "report.html").exists()
    code, said = finished.here("gc", "--yes", *home)
    assert (code, f"{len(results)} results stay, for no study of this ledger has asked for them yet" in said) == (0, True), (
        said
    )
    assert "nothing may go" in said
    code, said = finished.knockout("run", "small", *ALONE, *home)
    assert (code, "nothing to train" in said) == (0, True), said
    code, said = finished.here("gc", *home)
    assert (code, f"{len(results) - 1} runs stay, cited by the newest reports of small" in said) == (0, True), said
    code, said = finished.here("gc", "--state", "done", "--yes", *home)
    assert (code, "deleted 1" in said) == (0, True), said
    assert {path.name for path in (place.folder / "runs").iterdir()} == results - {uncited}


def test_weights_of_cited_runs_go_on_request_and_what_they_measured_stays(place: Workspace, uncited: str, finished):
    home = ["--workspace", str(place.folder)]
    code, said = finished.here("gc", "--cited", *home)
    assert (code, "give --weights with --cited" in said) == (2, True), said
    before = {path.parent: read_result(path.parent)["metrics"] for path in place.folder.glob("runs/*/result.json")}
    code, said = finished.here("gc", "--weights", "--cited", "--yes", *home)
    assert (code, f"deleted {len(before)}" in said) == (0, True), said
    assert list(place.folder.glob("runs/*/weights.pt")) == []
    assert {path.parent: read_result(path.parent)["metrics"] for path in place.folder.glob("runs/*/result.json")} == before
    code, said = finished.knockout("run", "small", *ALONE, *home)
    assert (code, "nothing to train" in said) == (0, True), said


def test_a_run_that_mlflow_cannot_let_go_stays_as_it_was(place: Workspace, uncited: str, finished):
    engine = connect(place.folder)._tracking_client.store.engine  # one for all clients of a process

    def refuse(connection: sqlite3.Connection, _: object) -> None:
        connection.execute("PRAGMA query_only = 1")

    stopped(place, uncited, seconds_ago=10.0)
    asked = ["gc", "--state", "cancelled", "--yes", "--workspace", str(place.folder)]
    query = "SELECT state, reason, host FROM runs WHERE identity = ?"
    before = rows(place.ledger, query, uncited)
    engine.dispose()
    event.listen(engine, "connect", refuse)
    code, said = finished.here(*asked)
    event.remove(engine, "connect", refuse)
    engine.dispose()
    database = place.folder / "mlflow" / "mlflow.db"
    refused = f"{database} cannot be read or written: attempt to write a readonly database; 0 of 1 deleted; "
    assert (code, said.startswith(refused)) == (2, True), said
    assert rows(place.ledger, query, uncited) == before
    assert before[0][0] == "cancelled"
    code, said = finished.here(*asked)
    assert (code, "deleted 1" in said, uncited in shown_in_mlflow(place)) == (0, True, False), said


def test_corpora_that_no_run_needs_and_temporary_files_go(place: Workspace, uncited: str):
    (corpus,) = (path for path in place.corpora.iterdir() if path.is_dir())
    half = place.run(uncited) / ".result.json.abcd1234"
    half.write_bytes(b"{")
    assert ("temporary", f"runs/{uncited}/{half.name}") in names(collect(place))
    assert not half.exists()
    assert corpus.exists()
    rows(place.ledger, "DELETE FROM asks")
    rows(place.ledger, "DELETE FROM runs")
    assert names(choose(place)) == [("corpus", f"corpora/{corpus.name}")]


def test_a_collection_that_is_killed_in_the_middle_is_finished_by_the_next(place: Workspace, uncited: str):
    gone = Owner(this_process().host, os.getpid(), "another start")
    ledger = Ledger(place)
    rows(place.ledger, "UPDATE runs SET state = 'leased', host = ?, pid = ?, process_started = ? WHERE identity = ?",
         gone.host, gone.pid, gone.started, uncited)  # fmt: skip
    (place.run(uncited) / "weights.pt").unlink()
    ledger.reconcile()
    ledger.close()
    assert names(collect(place, Wanted(states=("failed",)))) == [("run", uncited)]
    assert uncited not in known(place) | shown_in_mlflow(place)
    assert diagnose(place) == Diagnosis((), ())


def test_ages_and_sizes_are_read_as_they_are_written():
    assert [seconds(text) for text in ("30d", "12h", "2 w", "90s")] == [30 * DAY, DAY / 2, 14 * DAY, 90.0]
    assert [num_bytes(text) for text in ("1GB", "1.5 MB", "2GiB", "7b")] == [1e9, 1.5e6, 2 * 2**30, 7]
    assert [shown_age(age) for age in (40 * DAY, 90.0)] == ["40 d", "2 min"]
    assert [shown_bytes(count) for count in (7, 1_500, 2e9)] == ["7 B", "1.5 kB", "2.0 GB"]
    with pytest.raises(InputError, match=r"'30' is not an age: .* as in 30d"):
        seconds("30")


@pytest.mark.parametrize("name", ["lost+found", "runs", "corpora"])
def test_nothing_is_deleted_behind_a_link(place: Workspace, tmp_path: Path, name: str):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "kept").write_text("kept")
    if (place.folder / name).exists():
        (place.folder / name).rename(tmp_path / "before")
    (place.folder / name).symlink_to(victim)
    with pytest.raises(WorkspaceError, match="a link stands where a folder belongs: nothing is deleted there"):
        choose(place, Wanted(older_than_seconds=0.0))
    assert [path.name for path in victim.iterdir()] == ["kept"]


def test_weights_behind_a_link_stay_and_a_link_counts_as_its_own_bytes(place: Workspace, uncited: str, tmp_path: Path):
    folder, outside = place.run(uncited), tmp_path / "outside"
    folder.rename(outside)
    folder.symlink_to(outside)
    assert choose(place, Wanted(weights_only=True)) == []
    (run,) = [one for one in choose(place) if one.kind == "run"]
    artifacts = sum(path.lstat().st_blocks * 512 for file in run.paths[1:] for path in (file, *file.rglob("*")))
    assert run.num_bytes - artifacts <= 4096
    assert ("run", uncited) in names(collect(place))
    assert (outside / "weights.pt").exists()
    assert not os.path.lexists(folder)
