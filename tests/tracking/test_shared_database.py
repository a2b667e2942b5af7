"""MLflow's store in the database that machines share."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from knockout.services.catalog import MLFLOW, PREFECT
from knockout.tracking import Mirror, inspection, naming
from knockout.tracking.store import folder, is_prepared


def test_what_one_machine_mirrors_another_sees_and_writes_on(database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    one, other = tmp_path / "one", tmp_path / "other"
    assert not inspection.is_there(one)
    Mirror(one).open_submission("small", submission="s1", tags={}, params={}, artifacts={})
    Mirror(other).open_submission("small", submission="s1", tags={}, params={}, artifacts={})
    assert inspection.is_there(other)
    assert list(inspection.shown(other, key=naming.SUBMISSION)) == [("small", "s1")]
    assert inspection.damage(one) is None
    assert not list(tmp_path.rglob("mlflow.db"))
    version = metadata.version("mlflow")
    assert is_prepared(folder(one), version=version)
    monkeypatch.setenv("KNOCKOUT_DATABASE", database.address.replace("/lab_", "/elsewhere_"))
    assert not is_prepared(folder(one), version=version), "another database is not made yet"


def test_a_second_attempt_takes_the_place_of_the_first_there_too(database, tmp_path: Path):
    mirror = Mirror(tmp_path)
    parent = mirror.open_submission("small", submission="s1", tags={}, params={}, artifacts={})
    about = {"tags": {}, "params": {}, "split": {"ffn": 8}, "corpus": {}}
    run_id = mirror.open_run(parent, name="base", identity="a" * 16, **about)
    for speed, off in ((100.0, 0.0), (90.0, 70.0)):
        rows = [("speed", step, speed, step + off) for step in range(1, 11)]
        mirror.close_run(run_id, state="done", reason="", final={"speed": speed}, artifacts={}, series=rows)
    with database.connection() as connection:
        query = "SELECT key, step, value FROM mlflow.metrics WHERE run_uuid = %s ORDER BY key, step"
        shown = connection.execute(query, (run_id,)).fetchall()
    assert shown == [("final/speed", 0, 90.0), ("parameters/ffn", 0, 8.0), *(("speed", step, 90.0) for step in range(1, 11))]


def test_no_server_has_the_password_in_its_command_line(database, tmp_path: Path):
    for server in (PREFECT, MLFLOW):
        assert "open-sesame" not in " ".join(server.command(tmp_path, 1234))
    assert "open-sesame" in MLFLOW.environment(tmp_path, 1234, False)["MLFLOW_BACKEND_STORE_URI"]
    prefect = PREFECT.environment(tmp_path, 1234, False)
    assert prefect["PREFECT_API_DATABASE_CONNECTION_URL"].startswith("postgresql+asyncpg://")
    assert prefect["PREFECT_SERVER_DATABASE_SQLALCHEMY_CONNECT_ARGS_SEARCH_PATH"] == "prefect"
    assert "KNOCKOUT_DATABASE" not in prefect


def test_prefect_finds_an_extension_that_an_administrator_has_made(database, tmp_path: Path):
    with database.connection() as connection:
        connection.execute("CREATE EXTENSION pg_trgm SCHEMA public")
    prefect = PREFECT.environment(tmp_path, 1234, False)
    assert prefect["PREFECT_SERVER_DATABASE_SQLALCHEMY_CONNECT_ARGS_SEARCH_PATH"] == "prefect,public"
