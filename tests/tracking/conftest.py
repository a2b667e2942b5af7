"""One prepared MLflow store for the session (its migrations take seconds), copied for each test."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from knockout.tracking.store import prepare


@pytest.fixture(scope="session")
def prepared_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    workspace = tmp_path_factory.mktemp("prepared")
    prepare(workspace)
    return workspace / "mlflow"


@pytest.fixture
def workspace(tmp_path: Path, prepared_store: Path) -> Path:
    shutil.copytree(prepared_store, tmp_path / "mlflow")
    return tmp_path
