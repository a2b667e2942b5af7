"""`knockout doctor`: finds what is wrong, changes nothing unless told to, sets it right, and loses no result."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import optuna
import pyarrow.parquet as pq
import pytest

from knockout.ledger.process import Owner, this_process
from knockout.ledger.store import Ledger
from knockout.ledger.workspace import Workspace, open_workspace
from knockout.services import state
from knockout.services.catalog import SERVERS
from knockout.services.processes import identify
from knockout.submission.rows import readable_rows
from knockout.tracking.removal import Remover
from knockout.training.checkpoints import save_checkpoint
from knockout.upkeep.doctor import Diagnosis, diagnose, repair
from knockout.upkeep.finding import Finding

TEMPORARY = ".metrics.parquet.abcd1234"


@pytest.fixture
def place(finished, tmp_path: Path) -> Workspace:
    """A copy of the finished workspace that is at home where it is."""
    shutil.copytree(finished.folder, tmp_path / "home", symlinks=True)
    workspace = open_workspace(tmp_path / "home")
    assert set_right(workspace) == {None}
    assert diagnose(workspace) == Diagnosis((), ())
    return workspace


def rows(database: Path, query: str, *values: object) -> list[tuple]:
    with closing(sqlite3.connect(database)) as connection:
        found = connection.execute(query, values).fetchall()
        connection.commit()
    return found


def set_right(place: Workspace) -> set[str | None]:
    """What could not be repaired, and None for what could."""
    return {became.problem for became in repair(diagnose(place), workspace=place)}


def identities(place: Workspace) -> list[str]:
    return [name for (name,) in rows(place.ledger, "SELECT identity FROM runs ORDER BY identity")]


def run_folder(place: Workspace) -> Path:
    return place.run(identities(place)[0])


def flip(path: Path) -> None:
    path.chmod(0o644)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def corpus_folder(place: Workspace) -> Path:
    return next(path for path in place.corpora.iterdir() if path.is_dir())


def orphan(place: Workspace) -> None:
    shutil.copytree(run_folder(place), place.run("0" * 20))


def unfinished(place: Workspace) -> Path:
    """A run that failed on its way, with what it had left."""
    folder = run_folder(place)
    rows(place.ledger, "UPDATE runs SET state = 'failed', reason = 'x' WHERE identity = ?", folder.name)
    (folder / "result.json").unlink()
    for part in ("metrics", "checkpoints"):
        (folder / part).mkdir(exist_ok=True)
    shutil.rmtree(place.folder / "mlflow")
    rows(place.ledger, "UPDATE submissions SET mirrored = 0")
    return folder


def torn_segment(place: Workspace) -> None:
    (unfinished(place) / "metrics" / "0000000020.parquet").write_bytes(b"PAR1")


def torn_checkpoint(place: Workspace) -> None:
    (unfinished(place) / "checkpoints" / "0000000020.pt").write_bytes(b"PK")


def cut_off(place: Workspace) -> Path:
    """A run that failed on its way at step 20, with two segments and two checkpoints; its folder."""
    folder = unfinished(place)
    rows_of = pq.read_table(folder / "metrics.parquet")
    (folder / "metrics.parquet").unlink()
    for step in (10, 20):
        chosen = [step - 10 < number <= step for number in rows_of["step"].to_pylist()]
        pq.write_table(rows_of.filter(chosen), folder / "metrics" / f"{step:010d}.parquet")
        save_checkpoint(folder, step=step, state={"network": {}, "optimizer": {}})
    return folder


def unknown_and_running(place: Workspace) -> None:
    """As a ledger that was lost while they went on leaves them."""
    database = place.folder / "mlflow" / "mlflow.db"
    for key in ("knockout.submission", "knockout.identity"):
        (run,) = rows(database, "SELECT run_uuid FROM tags WHERE key = ? LIMIT 1", key)[0]
        rows(database, "UPDATE tags SET value = '00000000-gone' WHERE run_uuid = ? AND key = ?", run, key)
        rows(database, "UPDATE runs SET status = 'RUNNING', end_time = NULL WHERE run_uuid = ?", run)


def unfinished_and_lost(place: Workspace) -> Path:
    folder = cut_off(place)
    rows(place.ledger, "DELETE FROM runs WHERE identity = ?", folder.name)
    return folder


def lost_segment(place: Workspace) -> None:
    (cut_off(place) / "metrics" / "0000000010.parquet").unlink()


def lost_newest_segment(place: Workspace) -> None:
    (cut_off(place) / "metrics" / "0000000020.parquet").unlink()


def checkpoint_of_another_run(place: Workspace) -> None:
    folder = cut_off(place)
    other = place.run("1" * 20)
    other.mkdir()
    save_checkpoint(other, step=20, state={"network": {}, "optimizer": {}})
    (other / "checkpoints" / "0000000020.pt").replace(folder / "checkpoints" / "0000000020.pt")
    shutil.rmtree(other)


def segment_of_another_run(place: Workspace) -> None:
    path = cut_off(place) / "metrics" / "0000000010.parquet"
    pq.write_table(pq.read_table(path).replace_schema_metadata({b"knockout.run": b"1" * 20}), path)


def folder_at(name: str) -> Callable[[Workspace], None]:
    """A folder in the place of a file of an unfinished run."""

    def damage(place: Workspace) -> None:
        path = cut_off(place) / name
        path.unlink(missing_ok=True)
        path.mkdir()

    return damage


def result_that_is_a_folder(place: Workspace) -> None:
    (run_folder(place) / "result.json").unlink()
    (run_folder(place) / "result.json").mkdir()


def file_for_a_folder(place: Workspace) -> None:
    folder = cut_off(place)
    shutil.rmtree(folder / "checkpoints")
    (folder / "checkpoints").write_text("no folder")


def linked_log(place: Workspace) -> None:
    path = run_folder(place) / "log.txt"
    path.rename(place.folder.parent / "log.txt")
    path.symlink_to(place.folder.parent / "log.txt")


def linked_lost_and_found(place: Workspace) -> None:
    (place.folder.parent / "outside").mkdir()
    (place.folder / "lost+found").symlink_to(place.folder.parent / "outside")


def forgotten_report(place: Workspace) -> None:
    (place.folder / "reports" / "gone").mkdir()
    (place.folder / "reports" / "gone" / "report.html").write_text("<h1>gone</h1>")


def dead_server(place: Workspace) -> None:
    record_server(place, pid=2**22 + 1)


def server_of_the_original(place: Workspace) -> None:
    original = place.folder.parent / "original"
    record_server(place, pid=os.getpid(), workspace=str(original))
    shutil.copytree(place.folder / "services", original / "services")


def record_server(place: Workspace, *, pid: int, workspace: str | None = None) -> None:
    guard = identify(os.getpid())
    assert guard is not None
    path = SERVERS["prefect"].state(place.folder)
    path.parent.mkdir(exist_ok=True)
    service = state.Service("prefect", "http://127.0.0.1:1", 1, 0.0, path, guard)
    state.write(service, path=path)
    record = json.loads(path.read_text())
    record["guard"]["pid"] = pid
    path.write_text(json.dumps(record | {"workspace": workspace or record["workspace"]}))


def forgotten_search(place: Workspace) -> None:
    study = optuna.create_study(storage=f"sqlite:///{place.folder / 'optuna.db'}", study_name="abc", direction="minimize")
    trial = optuna.trial.create_trial(
        params={"learning_rate": 0.5},
        distributions={"learning_rate": optuna.distributions.FloatDistribution(0, 1)},
        value=1.0,
    )
    study.add_trial(trial)


def damaged_searches(place: Workspace) -> None:
    (place.folder / "optuna.db").write_text("garbage-garbage\n")


def shown_as_running(place: Workspace) -> None:
    database = place.folder / "mlflow" / "mlflow.db"
    rows(database, "UPDATE runs SET status = 'RUNNING' WHERE name LIKE 'baseline%' AND experiment_id = 1")


def wrong_final(place: Workspace) -> None:
    for table in ("latest_metrics", "metrics"):
        rows(place.folder / "mlflow" / "mlflow.db", f"DELETE FROM {table} WHERE key = 'final/val_loss'")


def another_attempts_values(place: Workspace) -> None:
    """What a run leaves that is trained again: its losses are the same, and what it cost is not."""
    run = "(SELECT run_uuid FROM runs WHERE name LIKE 'no-residual%')"
    cost = "(key LIKE '%tokens_per_second' OR key LIKE '%peak_memory_bytes')"
    for table in ("latest_metrics", "metrics"):
        change = f"UPDATE {table} SET value = value + 1, timestamp = timestamp - 9000 WHERE run_uuid = {run} AND {cost}"
        rows(place.folder / "mlflow" / "mlflow.db", change)


def unlisted_in_mlflow(place: Workspace) -> None:
    for identity in identities(place):
        Remover(place.folder).remove(identity)


def unlink(*parts: str) -> Callable[[Workspace], None]:
    return lambda place: place.folder.joinpath(*parts).unlink()


def folder_for_a_database(name: str) -> Callable[[Workspace], object]:
    """A folder where one of the workspace's databases belongs, with a file in it."""

    def stand(place: Workspace) -> None:
        path = place.folder / name
        for part in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
            part.unlink(missing_ok=True)
        path.mkdir(parents=True)
        (path / "kept.txt").write_text("kept")

    return stand


DAMAGES: dict[str, tuple[Callable[[Workspace], object], str, str]] = {
    "a folder that no run has": (orphan, "orphan", "runs/00000000000000000000"),
    "a result that the ledger lost": (
        lambda p: rows(p.ledger, "DELETE FROM runs WHERE identity = ?", run_folder(p).name), "orphan", "runs/*"
    ),
    "an unfinished run that the ledger lost": (unfinished_and_lost, "orphan", "runs/*"),
    "changed weights": (lambda p: flip(run_folder(p) / "weights.pt"), "damaged run", "runs/*"),
    "a run without files": (lambda p: shutil.rmtree(run_folder(p)), "damaged run", "runs/*"),
    "a half-written file": (
        lambda p: (run_folder(p) / TEMPORARY).write_bytes(b"PAR"), "half-written", f"runs/*/{TEMPORARY}"
    ),
    "a torn segment": (torn_segment, "damaged run", "runs/*/metrics/0000000020.parquet"),
    "a lost segment": (lost_segment, "damaged run", "runs/*"),
    "the newest segment lost": (lost_newest_segment, "damaged run", "runs/*"),
    "a checkpoint of another run": (checkpoint_of_another_run, "damaged run", "runs/*/checkpoints/0000000020.pt"),
    "a segment of another run": (segment_of_another_run, "damaged run", "runs/*/metrics/0000000010.parquet"),
    "a log that is a folder": (folder_at("log.txt"), "damaged run", "runs/*/log.txt"),
    "a result that is a folder": (result_that_is_a_folder, "damaged run", "runs/*"),
    "an unfinished result that is a folder": (folder_at("result.json"), "damaged run", "runs/*/result.json"),
    "a meaning that is a folder": (folder_at("meaning.json"), "damaged run", "runs/*/meaning.json"),
    "a checkpoint that is a folder": (
        folder_at("checkpoints/0000000030.pt"), "damaged run", "runs/*/checkpoints/0000000030.pt"
    ),
    "a file for a folder": (file_for_a_folder, "damaged run", "runs/*/checkpoints"),
    "a log that is a link": (linked_log, "damaged run", "runs/*/log.txt"),
    "a linked lost+found": (linked_lost_and_found, "link", "lost+found"),
    "a torn checkpoint": (torn_checkpoint, "damaged run", "runs/*/checkpoints/0000000020.pt"),
    "an MLflow store that is a folder": (folder_for_a_database("mlflow/mlflow.db"), "MLflow", "mlflow/mlflow.db"),
    "searches that are a folder": (folder_for_a_database("optuna.db"), "damaged searches", "optuna.db"),
    "flow runs that are a folder": (folder_for_a_database("prefect/prefect.db"), "Prefect", "prefect/prefect.db"),
    "a corpus without manifest": (
        lambda p: (corpus_folder(p) / "manifest.json").unlink(), "damaged corpus", "corpora/tiny-*"
    ),
    "a changed shard": (lambda p: flip(next(corpus_folder(p).glob("train*"))), "damaged corpus", "corpora/tiny-*"),
    "a corpus that was cut off": (lambda p: (p.corpora / ".x.partial").mkdir(), "half-written", "corpora/.x.partial"),
    "a search of no cell": (forgotten_search, "orphan search", "abc"),
    "a searches' database that is none": (damaged_searches, "damaged searches", "optuna.db"),
    "a report of no submission": (forgotten_report, "orphan report", "reports/gone/report.html"),
    "a dead server": (dead_server, "server record", "services/prefect.json"),
    "a server of the original": (server_of_the_original, "server record", "services/prefect.json"),
    "a missing MLflow database": (unlink("mlflow", "mlflow.db"), "MLflow", "mlflow/mlflow.db"),
    "a run that MLflow believes to go on": (shown_as_running, "MLflow", "mlflow/mlflow.db"),
    "a final value that MLflow lacks": (wrong_final, "MLflow", "mlflow/mlflow.db"),
    "values of another attempt": (another_attempts_values, "MLflow", "mlflow/mlflow.db"),
    "a submission and a run that MLflow believes to go on and no ledger knows": (
        unknown_and_running, "MLflow", "mlflow/mlflow.db"
    ),
    "runs that MLflow lacks": (unlisted_in_mlflow, "MLflow", "mlflow/mlflow.db"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(DAMAGES))
def test_damage_is_found_and_set_right_and_no_result_is_lost(place: Workspace, name: str):
    damage, kind, where = DAMAGES[name]
    sealed = results(place)
    damage(place)
    left, before = results(place), contents(place)
    found = diagnose(place)
    assert [finding.kind for finding in found.findings] == [kind], found
    assert Path(found.findings[0].where).match(where), found
    assert contents(place) == before
    assert set_right(place) == {None}
    assert diagnose(place) == Diagnosis((), ())
    assert left <= results(place) <= sealed


def results(place: Workspace) -> set[bytes]:
    """Every sealed result in the workspace, wherever it lies."""
    found = (path for path in place.folder.rglob("result.json") if "artifacts" not in path.parts and path.is_file())
    return {path.read_bytes() for path in found}


def contents(place: Workspace) -> dict[str, bytes]:
    """Every file but what SQLite keeps beside a database."""
    skipped = ("-wal", "-shm", ".lock")
    files = (path for path in place.folder.rglob("*") if path.is_file() and not path.name.endswith(skipped))
    return {str(path.relative_to(place.folder)): path.read_bytes() for path in files}


def test_a_lost_result_is_entered_as_it_was(place: Workspace):
    identity = identities(place)[0]
    query = "SELECT state, step, planned_steps, flops, metrics, meaning FROM runs WHERE identity = ?"
    before = rows(place.ledger, query, identity)
    rows(place.ledger, "DELETE FROM runs WHERE identity = ?", identity)
    assert set_right(place) == {None}
    assert rows(place.ledger, query, identity) == before


def test_a_run_on_its_way_that_the_ledger_lost_stays_where_it_is_and_is_known_again(place: Workspace):
    folder = unfinished_and_lost(place)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    (found,) = diagnose(place).findings
    assert "goes on from step 20" in found.what
    assert set_right(place) == {None}
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    query = "SELECT state, step, planned_steps, attempts FROM runs WHERE identity = ?"
    assert rows(place.ledger, query, folder.name) == [("failed", 20, 100, 0)]


def test_a_server_that_still_runs_where_the_workspace_was_is_told_and_stays_recorded(place: Workspace, finished):
    before = place.folder.parent / "before"
    record_server(place, pid=os.getpid(), workspace=str(before))
    helps = f"still runs for {before}, where this workspace was"
    (found,) = diagnose(place).findings
    assert (found.kind, helps in found.what, found.repair) == ("server record", True, None)
    assert found.remedy == f"`knockout down --workspace {before}` ends it"
    code, said = finished.here("down", "--workspace", str(place.folder))
    assert (code, helps in said, f"--workspace {before}` ends it" in said) == (1, True, True), said
    assert SERVERS["prefect"].state(place.folder).exists()


def test_what_belongs_nowhere_lies_in_lost_and_found_with_a_line_in_its_log(place: Workspace):
    orphan(place)
    assert set_right(place) == {None}
    assert (place.folder / "lost+found" / f"runs-{'0' * 20}" / "result.json").exists()
    assert (
        f"runs/{'0' * 20} -> runs-{'0' * 20}: the ledger knows no such run"
        in (place.folder / "lost+found" / "log.txt").read_text()
    )


def shown(place: Workspace) -> dict[str, Any]:
    """Everything that MLflow shows of a workspace's runs, but for ids and the moment of writing."""
    database = place.folder / "mlflow" / "mlflow.db"
    names = dict(rows(database, "SELECT run_uuid, name FROM runs"))
    told: dict[str, Any] = {name: {} for name in ("runs", "metrics", "params", "tags", "files")}
    told["runs"] = sorted(
        rows(database, "SELECT e.name, r.name, r.status FROM runs r JOIN experiments e USING (experiment_id)")
    )
    told["metrics"] = sorted(
        (names[run], *rest) for run, *rest in rows(database, "SELECT run_uuid, key, step, value FROM metrics")
    )
    told["latest"] = sorted(
        (names[run], *rest) for run, *rest in rows(database, "SELECT run_uuid, key, step, value FROM latest_metrics")
    )
    told["curves"] = sorted(
        rows(database, "SELECT key, timestamp FROM metrics WHERE key NOT LIKE 'final/%' AND key NOT LIKE 'parameters/%'")
    )
    told["params"] = sorted((names[run], *rest) for run, *rest in rows(database, "SELECT run_uuid, key, value FROM params"))
    query = "SELECT run_uuid, key, value FROM tags WHERE key != 'mlflow.user' AND key NOT LIKE 'mlflow.source.%'"
    told["tags"] = sorted((names[run], key, names.get(value, value)) for run, key, value in rows(database, query))
    artifacts = place.folder / "mlflow" / "artifacts"
    for path in (path for path in artifacts.rglob("*") if path.is_file() and path.name != "plan.txt"):
        experiment, run, _, *inside = path.relative_to(artifacts).parts
        told["files"][experiment, names[run], *inside] = path.read_bytes()
    return told


@pytest.mark.parametrize("harm", ["missing", "damaged"])
def test_mlflows_database_is_built_again_as_it_was(place: Workspace, harm: str):
    database, before = place.folder / "mlflow" / "mlflow.db", shown(place)
    assert len(before["runs"]) == 6
    for beside in ("-wal", "-shm"):
        database.with_name(database.name + beside).unlink(missing_ok=True)
    if harm == "missing":
        database.unlink()
    else:
        with database.open("r+b") as file:
            file.seek(4096)
            file.write(b"\xa5" * 65_536)
    found = diagnose(place)
    assert harm in found.findings[0].what
    assert set_right(place) == {None}
    after = shown(place)
    for part in before:
        assert after[part] == before[part], part
    assert diagnose(place) == Diagnosis((), ())


def test_a_damaged_searches_database_hides_nothing_and_goes_with_what_sqlite_keeps_beside_it(place: Workspace):
    orphan(place)
    forgotten_report(place)
    damaged_searches(place)
    (place.folder / "optuna.db-wal").write_bytes(b"of the damaged one")
    assert [finding.kind for finding in diagnose(place).findings] == ["orphan", "damaged searches", "orphan report"]
    assert set_right(place) == {None}
    assert list(place.folder.glob("optuna*")) == []
    assert (place.folder / "lost+found" / "optuna.db").read_text() == "garbage-garbage\n"
    assert diagnose(place) == Diagnosis((), ())


def test_databases_that_another_process_holds_are_told_and_stay(place: Workspace, monkeypatch: pytest.MonkeyPatch):
    for module in ("services.sqlite", "tracking.inspection"):
        monkeypatch.setattr(f"knockout.{module}.BUSY_TIMEOUT_SECONDS", 0.05)
    forgotten_search(place)
    mlflow = closing(sqlite3.connect(place.folder / "mlflow" / "mlflow.db"))
    with closing(sqlite3.connect(place.folder / "optuna.db")) as searches, mlflow as shown:
        searches.execute("BEGIN EXCLUSIVE")
        shown.execute("PRAGMA locking_mode = EXCLUSIVE")
        shown.execute("BEGIN EXCLUSIVE")
        found = diagnose(place).findings
    assert [(one.kind, one.repair) for one in found] == [("searches", None), ("MLflow", None)]
    assert all(one.what.endswith("database is locked") for one in found), found


def test_the_command_finds_repairs_and_says_so(place: Workspace, finished):
    orphan(place)
    home = ["--workspace", str(place.folder)]
    code, said = finished.here("doctor", *home)
    assert code == 1, said
    assert f"orphan: runs/{'0' * 20}: the ledger knows no such run; --repair moves it to lost+found/" in said
    code, said = finished.knockout("doctor", "--repair", *home)
    assert (code, "repaired" in said) == (0, True), said
    code, said = finished.here("doctor", *home, "--json")
    assert (code, json.loads(said)) == (0, {"settled": [], "findings": []})


def test_a_lease_of_a_dead_process_is_taken_back_and_told(place: Workspace):
    ledger, identity = Ledger(place), identities(place)[0]
    ledger.reopen(identity, reason="x")
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = Owner(this_process().host, process.pid, "dead by now")
    assert ledger.claim(identity, owner=owner)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    sealed = place.run(identity) / "result.json"
    sealed.rename(kept := sealed.with_suffix(".kept"))
    assert diagnose(place).settled == (f"{identity} was held by a dead process: it has failed, and can be run again",)
    run = ledger.run(identity)
    assert run is not None
    assert (run.state, run.reason) == ("failed", f"{owner} died while it held the run")
    kept.rename(sealed)
    diagnose(place)
    run = ledger.run(identity)
    assert run is not None
    assert (run.state, run.reason) == ("done", None), "its result was sealed before its owner died"
    ledger.close()


def test_a_ledger_of_an_older_knockout_is_told_kept_and_brought_up(place: Workspace):
    rows(place.ledger, "ALTER TABLE submissions DROP COLUMN mirrored")
    rows(place.ledger, "PRAGMA user_version = 0")
    before = contents(place)
    found = diagnose(place)
    assert "made by an older knockout: it lacks submissions.mirrored" in found.findings[0].what
    assert contents(place) == before
    assert set_right(place) == {None}
    (kept,) = place.folder.glob("ledger.db.before-*")
    assert rows(kept, "SELECT count(*) FROM runs") == rows(place.ledger, "SELECT count(*) FROM runs") == [(3,)]
    assert diagnose(place) == Diagnosis((), ())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("PRAGMA user_version = 99", "was made by a newer knockout (format 99, this one reads 1): use that version"),
        ("ALTER TABLE runs DROP COLUMN flops", "was made by an older knockout and lacks runs.flops, which this one cannot"),
    ],
)
def test_a_ledger_that_cannot_be_used_is_refused_in_words(place: Workspace, finished, change: str, says: str):
    rows(place.ledger, change)
    (finding,) = diagnose(place).findings
    assert says in finding.what
    assert finding.repair is None
    code, said = finished.here("report", "small", "--workspace", str(place.folder))
    assert (code, says in said, "Traceback" in said) == (2, True, False), said


def test_a_value_that_was_altered_in_a_result_is_found_and_the_ledgers_is_written_again(place: Workspace):
    path = run_folder(place) / "result.json"
    sealed = path.read_bytes()
    result = json.loads(sealed)
    true = result["metrics"]["val_loss"]
    altered = json.dumps(result | {"metrics": result["metrics"] | {"val_loss": 0.5}, "step": 7}).encode()
    path.write_bytes(altered)
    before = contents(place)
    (finding,) = diagnose(place).findings
    assert (finding.kind, finding.where) == ("altered result", str(path.relative_to(place.folder)))
    assert f"step is 7, not {result['step']}; val_loss is 0.5, not {true}" in finding.what
    assert contents(place) == before
    assert set_right(place) == {None}
    assert path.read_bytes() == sealed
    (kept,) = (place.folder / "lost+found").glob("runs-*-result.json")
    assert kept.read_bytes() == altered
    assert diagnose(place) == Diagnosis((), ())


def test_what_mlflow_lacks_is_counted_by_runs_and_submissions(place: Workspace):
    rows(place.folder / "mlflow" / "mlflow.db", "UPDATE runs SET status = 'RUNNING'")
    (finding,) = diagnose(place).findings
    assert finding.what == "it does not show 3 runs and 2 submissions of the ledger as they are"


def points(place: Workspace, identity: str) -> dict[str, list[tuple]]:
    """Every (metric, step, value) of a run: as MLflow shows them, and as its own files have them."""
    table = pq.read_table(place.run(identity) / "metrics.parquet").to_pylist()
    final = json.loads((place.run(identity) / "result.json").read_bytes())["metrics"]
    of_run = "JOIN tags USING (run_uuid) WHERE tags.key = 'knockout.identity' AND tags.value = ?"
    query = f"SELECT m.key, m.step, m.value FROM metrics m {of_run} AND m.key NOT LIKE 'parameters/%'"
    return {
        "shown": sorted(rows(place.folder / "mlflow" / "mlflow.db", query, identity)),
        "sealed": sorted(
            [(row["metric"], row["step"], row["value"]) for row in table]
            + [(f"final/{name}", 0, value) for name, value in final.items()]
        ),
    }


def test_a_run_that_is_trained_again_is_shown_as_it_came_out_the_second_time(place: Workspace, finished):
    query = "SELECT identity FROM asks WHERE variant = 'no-residual'"
    ((identity,),) = rows(place.ledger, query)
    before = points(place, identity)
    assert before["shown"] == before["sealed"]
    shutil.rmtree(place.run(identity))
    code, said = finished.knockout("run", "small", "--no-prefect", "--workspace", str(place.folder))
    assert code == 0, said
    assert rows(place.ledger, "SELECT attempts FROM runs WHERE identity = ?", identity) == [(2,)]
    after = points(place, identity)
    assert after["sealed"] != before["sealed"], "what training costs is never the same twice"
    assert after["shown"] == after["sealed"]
    assert diagnose(place) == Diagnosis((), ())

    assert len(rows(place.ledger, query)) == 2, "two submissions of the study ask for it"
    another_attempts_values(place)
    (finding,) = diagnose(place).findings
    assert finding.what == "it does not show 1 run of the ledger as they are"
    assert set_right(place) == {None}
    assert points(place, identity) == after
    assert diagnose(place) == Diagnosis((), ())


def test_what_is_still_found_after_its_repair_is_not_called_repaired(
    place: Workspace, monkeypatch: pytest.MonkeyPatch, tell: Callable[..., tuple[int, str, str]]
):
    tried: list[str] = []
    stays = Finding("server record", "services/x.json", "it names no server", "removes it", lambda: tried.append("x"))
    monkeypatch.setattr("knockout.upkeep.content.servers", lambda workspace: iter([stays]))
    orphan(place)
    became = {one.finding.kind: one.problem for one in repair(diagnose(place), workspace=place)}
    assert became == {"orphan": None, "server record": "a second look after it was set right finds it unchanged"}
    assert len(tried) == 2
    code, said, _ = tell("doctor", "--repair", "--workspace", str(place.folder))
    assert code == 1
    assert "it names no server; not repaired: a second look after it was set right finds it unchanged" in said
    assert "1 found, 0 repaired, 1 not" in said


def test_a_look_at_a_copy_says_that_its_ledger_was_changed(finished, tmp_path: Path):
    shutil.copytree(finished.folder, tmp_path / "home", symlinks=True)
    (said,) = diagnose(open_workspace(tmp_path / "home")).settled
    assert said.startswith(f"the workspace was copied or moved from {finished.folder}: the ledger was changed")
    assert diagnose(open_workspace(tmp_path / "home")).settled == ()


def test_a_store_that_a_killed_process_left_half_made_is_built_again(place: Workspace):
    shutil.rmtree(place.folder / "mlflow")
    (place.folder / "mlflow").mkdir()
    rows(place.folder / "mlflow" / "mlflow.db", "CREATE TABLE spans (trace_id TEXT)")
    (finding,) = diagnose(place).findings
    assert (finding.kind, finding.where) == ("MLflow", "mlflow/mlflow.db")
    assert set_right(place) == {None}
    assert diagnose(place) == Diagnosis((), ())


def test_a_command_that_could_not_tell_mlflow_does_not_say_that_it_did(place: Workspace, finished):
    rows(place.folder / "mlflow" / "mlflow.db", "UPDATE alembic_version SET version_num = 'from_the_future'")
    (place.folder / "mlflow" / "prepared").unlink()
    code, said = finished.knockout("run", "small", "--no-prefect", "--workspace", str(place.folder))
    assert (code, "Traceback" in said) == (0, False), said
    assert "cannot use this store" in said
    assert "mlflow   lacks what is named above" in said
    assert "`knockout up` shows" not in said
    code, said = finished.knockout("doctor", "--repair", "--workspace", str(place.folder))
    assert (code, "Traceback" in said) == (1, False), said
    assert "not repaired" in said


def test_a_run_whose_metrics_cannot_be_read_keeps_mlflow_from_nothing(place: Workspace):
    """The mirror is built again beside a run that is set right in the same go."""
    folder = run_folder(place)
    (folder / "metrics.parquet").write_bytes(b"PAR1")
    (place.folder / "mlflow" / "mlflow.db").unlink()
    assert readable_rows(folder) == ()
    assert set_right(place) == {None}
    assert diagnose(place) == Diagnosis((), ())


def test_a_workspace_whose_folders_lead_out_of_it_is_told(place: Workspace):
    (place.folder / "runs").rename(place.folder.parent / "elsewhere")
    (place.folder / "runs").symlink_to(place.folder.parent / "elsewhere")
    (finding,) = diagnose(place).findings
    assert (finding.kind, finding.where, finding.repair) == ("link", "runs", None)


def test_an_altered_result_that_the_ledger_lost_is_not_entered(place: Workspace):
    folder = run_folder(place)
    result = json.loads((folder / "result.json").read_text())
    result["metrics"]["val_loss"] -= 1.0
    (folder / "result.json").write_text(json.dumps(result))
    rows(place.ledger, "DELETE FROM runs WHERE identity = ?", folder.name)
    found = [one for one in diagnose(place).findings if one.kind == "damaged run"]
    assert [(one.where, "its result says that val_loss is" in one.what) for one in found] == [(f"runs/{folder.name}", True)]
    set_right(place)
    assert folder.name not in identities(place)
    assert (place.folder / "lost+found" / f"runs-{folder.name}" / "result.json").exists()


def test_a_done_run_that_holds_the_files_of_another_is_opened_again(place: Workspace):
    one, other, *_ = (place.run(name) for name in identities(place))
    for name in ("result.json", "metrics.parquet", "weights.pt"):
        shutil.copy2(one / name, other / name)
    (finding,) = diagnose(place).findings
    assert (finding.kind, finding.where) == ("damaged run", f"runs/{other.name}")
    assert finding.what == f"its metrics are those of run {one.name}"
    assert set_right(place) == {None}
    states = dict(rows(place.ledger, "SELECT identity, state FROM runs"))
    assert (states[one.name], states[other.name]) == ("done", "failed")
    assert (place.folder / "lost+found" / f"runs-{other.name}" / "result.json").exists()
    assert diagnose(place).findings == ()
