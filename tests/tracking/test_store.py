"""The store is made once, whoever comes first, and stays usable."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy.exc

from knockout.errors import WorkspaceError
from knockout.tracking.background import BackgroundMirror
from knockout.tracking.database_file import is_held
from knockout.tracking.inspection import damage
from knockout.tracking.mirror import Mirror
from knockout.tracking.store import folder, import_mlflow, prepare

CONNECT = sqlite3.connect
PREPARE = "import sys; from pathlib import Path; from knockout.tracking import prepare; prepare(Path(sys.argv[1]))"


def test_six_processes_may_open_a_new_store_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", PREPARE, str(tmp_path)]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(6)]
    said = [process.communicate(timeout=120)[1] for process in started]

    assert [process.returncode for process in started] == [0] * 6, said
    assert said == [""] * 6
    with closing(sqlite3.connect(folder(tmp_path) / "mlflow.db")) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("SELECT name FROM experiments").fetchall() == [("Default",)]


def test_a_prepared_store_costs_no_import(workspace: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from knockout.tracking import prepare; "
        f"print(prepare(Path({str(workspace)!r}))); sys.exit('mlflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == f"sqlite:///{workspace.resolve()}/mlflow/mlflow.db"


def make_older_store(database: Path) -> None:
    """A store as it was before MLflow's newest migration, with one run."""
    import_mlflow()
    from alembic import command
    from alembic.script import ScriptDirectory
    from mlflow.store.db.utils import _get_alembic_config, create_sqlalchemy_engine_with_retry
    from mlflow.store.tracking.dbmodels.initial_models import Base

    uri = f"sqlite:///{database}"
    engine = create_sqlalchemy_engine_with_retry(uri)
    Base.metadata.create_all(engine)
    configuration = _get_alembic_config(uri)
    scripts = ScriptDirectory.from_config(configuration)
    command.upgrade(configuration, str(scripts.get_revision("head").down_revision))
    engine.dispose()
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("INSERT INTO experiments (experiment_id, name, lifecycle_stage) VALUES (7, 'older', 'active')")
        connection.execute("INSERT INTO runs (run_uuid, experiment_id, lifecycle_stage) VALUES ('abc', 7, 'active')")
        connection.commit()


def schema_version(database: Path) -> str:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute("SELECT version_num FROM alembic_version").fetchone()[0]


def test_a_store_of_an_older_mlflow_is_copied_aside_and_upgraded(tmp_path: Path, prepared_store: Path) -> None:
    place = folder(tmp_path)
    place.mkdir()
    make_older_store(place / "mlflow.db")
    older = schema_version(place / "mlflow.db")

    prepare(tmp_path)
    (copy,) = place.glob("mlflow.db.before-*")
    assert schema_version(copy) == older
    assert schema_version(place / "mlflow.db") == schema_version(prepared_store / "mlflow.db") != older
    Mirror(tmp_path).open_submission("after", submission="one", tags={}, params={}, artifacts={})


KILLED_WHILE_IT_MIGRATES = """if True:
    import os, signal, sys
    from pathlib import Path
    from knockout.tracking.store import import_mlflow, prepare
    import_mlflow()
    import alembic.op
    made, create = [], alembic.op.create_table
    def create_and_die(name, *columns, **settings):
        create(name, *columns, **settings)
        made.append(name)
        if len(made) == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
    alembic.op.create_table = create_and_die
    prepare(Path(sys.argv[1]))"""


def kill_while_it_migrates(workspace: Path, *, after_tables: int) -> None:
    command = [sys.executable, "-c", KILLED_WHILE_IT_MIGRATES, str(workspace), str(after_tables)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL


def test_a_process_that_is_killed_while_it_makes_the_store_leaves_none(tmp_path: Path) -> None:
    kill_while_it_migrates(tmp_path, after_tables=12)
    assert not (folder(tmp_path) / "mlflow.db").exists()
    prepare(tmp_path)
    assert sorted(path.name for path in folder(tmp_path).iterdir()) == ["mlflow.db", "prepared", "store.lock"]
    Mirror(tmp_path).open_submission("after", submission="one", tags={}, params={}, artifacts={})


def test_a_store_that_was_half_made_is_kept_aside_and_made_anew(tmp_path: Path, prepared_store: Path) -> None:
    kill_while_it_migrates(tmp_path, after_tables=12)
    place = folder(tmp_path)
    for left in place.glob(".mlflow.db.new*"):  # as if it had been made in its own place
        left.rename(place / left.name.removeprefix(".").replace(".new", ""))
    half = schema_version(place / "mlflow.db")

    prepare(tmp_path)
    assert schema_version(place / "mlflow.db.half-made") == half
    assert schema_version(place / "mlflow.db") == schema_version(prepared_store / "mlflow.db") != half
    Mirror(tmp_path).open_submission("after", submission="one", tags={}, params={}, artifacts={})


def refused(*_: object, **__: object) -> None:
    raise sqlalchemy.exc.OperationalError("CREATE TABLE spans", {}, sqlite3.OperationalError("table spans already exists"))


def test_an_upgrade_that_fails_leaves_the_store_and_earlier_copies_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = folder(tmp_path)
    place.mkdir()
    make_older_store(place / "mlflow.db")
    older = schema_version(place / "mlflow.db")
    monkeypatch.setattr("alembic.op.create_table", refused)
    monkeypatch.setattr("alembic.op.batch_alter_table", refused)
    kept = place / f"mlflow.db.before-{importlib.metadata.version('mlflow')}"
    kept.write_bytes(b"the whole one")
    with pytest.raises(WorkspaceError, match=r"mlflow\.db: MLflow .* cannot use this store"):
        prepare(tmp_path)
    assert kept.read_bytes() == b"the whole one"
    assert schema_version(place / "mlflow.db") == older


def test_a_store_that_the_server_made_is_taken_as_it_is(workspace: Path) -> None:
    (folder(workspace) / "prepared").unlink()
    prepare(workspace)
    assert list(folder(workspace).glob("mlflow.db.before-*")) == []


def test_a_store_of_a_newer_mlflow_is_refused_in_words(workspace: Path) -> None:
    with closing(sqlite3.connect(folder(workspace) / "mlflow.db")) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'from_the_future'")
        connection.commit()
    (folder(workspace) / "prepared").unlink()
    with pytest.raises(WorkspaceError, match=r"mlflow\.db: MLflow .* cannot use this store .*a newer MLflow made it"):
        prepare(workspace)


def without_room(*given: Any, **settings: Any) -> sqlite3.Connection:
    """A connection to a file that may have no more pages than it has: SQLite then says what it says of a full disk."""
    connection = CONNECT(*given, **settings)
    connection.execute("PRAGMA max_page_count = 1")
    return connection


def test_a_disk_without_room_is_not_blamed_on_a_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import_mlflow()
    monkeypatch.setattr("sqlite3.dbapi2.connect", without_room)
    with pytest.raises(WorkspaceError, match=r"mlflow\.db cannot be read or written: database or disk is full$"):
        prepare(tmp_path)


@pytest.mark.parametrize("pages", [3, 40, 200])
def test_a_draft_that_found_no_room_gives_it_back_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pages: int
) -> None:
    """In the first tables, between the migrations, and when the draft is whole: the store has some 250 pages."""

    def with_little_room(*given: Any, **settings: Any) -> sqlite3.Connection:
        connection = CONNECT(*given, **settings)
        connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    import_mlflow()
    monkeypatch.setattr("sqlite3.dbapi2.connect", with_little_room)
    with pytest.raises(WorkspaceError, match=r"mlflow\.db cannot be read or written: database or disk is full$"):
        prepare(tmp_path)
    assert [path.name for path in folder(tmp_path).iterdir()] == ["store.lock"]
    here = str(folder(tmp_path))
    held = [path for path in Path("/proc/self/fd").iterdir() if os.path.realpath(path).startswith(here)]
    assert {os.stat(path).st_size for path in held if "-shm" not in os.readlink(path)} <= {0}


def test_a_wait_for_a_file_that_another_connection_writes_to_is_told_in_a_line(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []
    with closing(sqlite3.connect(folder(workspace) / "mlflow.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        mirror = BackgroundMirror(workspace)
        mirror.perform("all", lambda mirror: mirror.open_submission("s", submission="1", tags={}, params={}, artifacts={}))

        def end_the_wait(line: str) -> None:
            said.append(line)
            other.execute("ROLLBACK")

        assert mirror.close(timeout_seconds=60, say=end_the_wait) is None
    assert said == ["waiting for MLflow's database, which another process holds …"]
    assert not is_held(folder(workspace) / "mlflow.db")
    logging.getLogger("mlflow.store.db.utils").error("SQLAlchemy database error, with thirty lines of SQL")
    assert capfd.readouterr() == ("", "")


def test_a_locked_file_is_not_blamed_on_a_version(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder(workspace) / "prepared").unlink()
    monkeypatch.setattr("knockout.tracking.database_file.BUSY_TIMEOUT_SECONDS", 0.05)
    monkeypatch.setattr("knockout.tracking.inspection.BUSY_TIMEOUT_SECONDS", 0.05)
    says = r"mlflow\.db cannot be read or written: database is locked$"
    with closing(sqlite3.connect(folder(workspace) / "mlflow.db")) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(WorkspaceError, match=says):
            prepare(workspace)
        with pytest.raises(WorkspaceError, match=says):
            damage(workspace)
    assert damage(workspace) is None


@pytest.mark.parametrize("was_prepared", [True, False])
def test_a_damaged_file_is_not_blamed_on_a_version(workspace: Path, was_prepared: bool) -> None:
    (folder(workspace) / "mlflow.db").write_text("garbage-garbage\n")
    if not was_prepared:
        (folder(workspace) / "prepared").unlink()
    mends = r"`knockout doctor --repair` builds it again from the ledger$"
    with pytest.raises(WorkspaceError, match=rf"mlflow\.db is damaged \(file is not a database\): {mends}"):
        prepare(workspace)


def test_nothing_is_written_outside_the_workspace(
    workspace: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(elsewhere)
    Mirror(workspace).open_submission("s", submission="one", tags={}, params={}, artifacts={"a.txt": "a"})
    assert list(elsewhere.iterdir()) == []
    assert [path.read_text() for path in (workspace / "mlflow" / "artifacts").rglob("a.txt")] == ["a"]
