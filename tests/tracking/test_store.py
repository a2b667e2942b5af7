"""The store is made once, whoever comes first, and stays usable."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from knockout.errors import WorkspaceError
from knockout.tracking.mirror import Mirror
from knockout.tracking.store import folder, prepare

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


def test_a_store_of_another_version_is_copied_aside_and_upgraded(workspace: Path) -> None:
    mirror = Mirror(workspace)
    mirror.open_submission("kept", submission="one", tags={}, params={}, artifacts={})
    (folder(workspace) / "prepared").write_text("3.5.0\n")

    prepare(workspace)
    (copy,) = folder(workspace).glob("mlflow.db.before-*")
    for database in (copy, folder(workspace) / "mlflow.db"):
        with closing(sqlite3.connect(database)) as connection:
            assert connection.execute("SELECT count(*) FROM runs").fetchone() == (1,)


def test_a_store_of_a_newer_mlflow_is_refused_in_words(workspace: Path) -> None:
    with closing(sqlite3.connect(folder(workspace) / "mlflow.db")) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'from_the_future'")
        connection.commit()
    (folder(workspace) / "prepared").unlink()
    with pytest.raises(WorkspaceError, match=r"mlflow\.db: MLflow .* cannot use this store"):
        prepare(workspace)


def test_nothing_is_written_outside_the_workspace(
    workspace: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(elsewhere)
    Mirror(workspace).open_submission("s", submission="one", tags={}, params={}, artifacts={"a.txt": "a"})
    assert list(elsewhere.iterdir()) == []
    assert [path.read_text() for path in (workspace / "mlflow" / "artifacts").rglob("a.txt")] == ["a"]
