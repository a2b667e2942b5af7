"""The MLflow store of a workspace: one SQLite file in WAL mode, created and migrated once.

The invariant: every table exists before anyone writes. MLflow itself migrates in whichever process comes
first, with no lock, so six processes on a new store destroy one another's work; here the first takes the lock
that the MLflow server's start takes too, and the rest find it done.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sqlite3
import warnings
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from knockout.errors import WorkspaceError
from knockout.services.environment import QUIET, TELEMETRY_OFF
from knockout.services.locks import locked, store_lock
from knockout.services.relocation import artifact_root, relocate

if TYPE_CHECKING:
    from mlflow import MlflowClient

LOCK_TIMEOUT_SECONDS = 180.0
BUSY_TIMEOUT_SECONDS = 60.0
STORE_MODULES = ("mlflow", "mlflow.store.db.utils", "mlflow.store.tracking.sqlalchemy_store")


def folder(workspace: Path) -> Path:
    """Where the database and the artifacts are."""
    return workspace.resolve() / "mlflow"


def tracking_uri(workspace: Path) -> str:
    """The address that MLflow's clients and server take."""
    return f"sqlite:///{folder(workspace) / 'mlflow.db'}"


def artifact_location(workspace: Path, *, experiment: str) -> str:
    """The file URI below which an experiment keeps its artifacts."""
    return f"{artifact_root(workspace)}/{quote(experiment)}"


def prepare(workspace: Path) -> str:
    """Make the store ready for the installed MLflow, once, whoever comes first. Returns the tracking URI.

    A store that was copied or moved is made this workspace's.

    The first call creates all tables (about 5 s); later ones read one small file. Raises WorkspaceError if
    the store was made by a newer MLflow, ServiceError if another process holds the lock for three minutes.
    """
    place, version = folder(workspace), importlib.metadata.version("mlflow")
    if not is_prepared(place, version=version):
        with locked(store_lock(workspace, name="mlflow"), timeout_seconds=LOCK_TIMEOUT_SECONDS):
            if not is_prepared(place, version=version):
                migrate(workspace)
                (place / "prepared").write_text(f"{version}\n")
    relocate(workspace)
    return tracking_uri(workspace)


def is_prepared(place: Path, *, version: str) -> bool:
    """Whether this version of MLflow has migrated the store."""
    marker = place / "prepared"
    return (place / "mlflow.db").is_file() and marker.is_file() and marker.read_text().strip() == version


def migrate(workspace: Path) -> None:
    """Create or upgrade every table, with the lock held. An older store is copied aside first."""
    import_mlflow()
    from mlflow.exceptions import MlflowException
    from mlflow.store.db import utils
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    place, uri = folder(workspace), tracking_uri(workspace)
    place.mkdir(parents=True, exist_ok=True)
    has_tables = use_wal(place / "mlflow.db")
    try:
        if has_tables:
            engine = utils.create_sqlalchemy_engine_with_retry(uri)
            if utils._get_schema_version(engine) != utils._get_latest_schema_revision():
                copy_aside(place)
                utils._upgrade_db(engine)  # what `mlflow db upgrade` does
            engine.dispose()
        # The constructor creates the tables of an empty database, and the default experiment.
        SqlAlchemyStore(uri, artifact_root(workspace)).engine.dispose()
    except (MlflowException, alembic_error()) as error:
        raise WorkspaceError(
            f"{place / 'mlflow.db'}: MLflow {importlib.metadata.version('mlflow')} cannot use this store "
            f"({error}); it may come from a newer MLflow: install that, or move the file away"
        ) from error


def alembic_error() -> type[Exception]:
    """What the migration tool raises."""
    return importlib.import_module("alembic.util").CommandError


def use_wal(database: Path) -> bool:
    """Turn on write-ahead logging: a writer waits 0.2 s at most, not 3 s. Returns whether it has tables."""
    with closing(sqlite3.connect(database, timeout=BUSY_TIMEOUT_SECONDS)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        return connection.execute("SELECT count(*) FROM sqlite_master WHERE type = 'table'").fetchone()[0] > 0


def copy_aside(place: Path) -> None:
    """Keep the store as it was before a migration, as `mlflow.db.before-VERSION`."""
    target = place / f"mlflow.db.before-{importlib.metadata.version('mlflow')}"
    with (
        closing(sqlite3.connect(place / "mlflow.db", timeout=BUSY_TIMEOUT_SECONDS)) as source,
        closing(sqlite3.connect(target)) as copy,
    ):
        source.backup(copy)


def connect(workspace: Path) -> MlflowClient:
    """A client that writes to the workspace's store, which is made ready first."""
    uri = prepare(workspace)
    import_mlflow()
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def import_mlflow() -> None:
    """Import MLflow and its store (2 s), with its telemetry off and its deprecation warnings unsaid."""
    os.environ.update(TELEMETRY_OFF)
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", QUIET["MLFLOW_LOGGING_LEVEL"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in STORE_MODULES:
            importlib.import_module(module)
