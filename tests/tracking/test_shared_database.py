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
