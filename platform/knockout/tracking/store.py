"""The MLflow store of a workspace: one SQLite file in WAL mode, or the database that machines share; made and migrated once.

The invariant: every table exists before anyone writes. MLflow itself migrates in whichever process comes
first, with no lock, so six processes on a new store destroy one another's work; here the first takes the lock
that the MLflow server's start takes too, and the rest find it done.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import logging
import os
import sqlite3
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from knockout.errors import ServiceError, WorkspaceError
from knockout.services.database import Database, find_database, store_url
from knockout.services.environment import QUIET, TELEMETRY_OFF
from knockout.services.importing import uncollected
from knockout.services.locks import locked, store_lock
from knockout.services.relocation import REMEDY, artifact_root, relocate
from knockout.services.sqlite import trouble
from knockout.tracking.database_file import NAME, make_ready

if TYPE_CHECKING:
    from mlflow import MlflowClient

LOCK_TIMEOUT_SECONDS = 180.0
UNKNOWN_REVISION = "Can't locate revision"
"""How alembic, which migrates MLflow's tables, begins to say that a newer MLflow has migrated them."""
STORE_LOG = "mlflow.store.db.utils"
STORE_MODULES = ("mlflow", "mlflow.store.db.utils", "mlflow.store.tracking.sqlalchemy_store")


def folder(workspace: Path) -> Path:
    """Where the database and the artifacts are."""
    return workspace.resolve() / "mlflow"


def tracking_uri(workspace: Path) -> str:
    """The address that MLflow's clients and server take."""
    return store_url(workspace, schema="mlflow", file=folder(workspace) / NAME)


def artifact_location(workspace: Path, *, experiment: str) -> str:
    """The file URI below which an experiment keeps its artifacts."""
    return f"{artifact_root(workspace)}/{quote(experiment)}"


def prepare(workspace: Path) -> str:
    """Make the store ready for the installed MLflow, once, whoever comes first. Returns the tracking URI.

    A store that was copied or moved is made this workspace's.

    The first call creates all tables (about 5 s); later ones read one small file. Raises WorkspaceError if
    the store was made by a newer MLflow, is damaged, or cannot be read or written; ServiceError if another
    process holds the lock for three minutes.
    """
    place, version = folder(workspace), importlib.metadata.version("mlflow")
    if not is_prepared(place, version=version):
        with locked(store_lock(workspace, name="mlflow"), timeout_seconds=LOCK_TIMEOUT_SECONDS), _turn(workspace):
            if not is_prepared(place, version=version):
                migrate(workspace)
                (place / "prepared").write_text(f"{_said(place, version=version)}\n")
    relocate(workspace)
    return tracking_uri(workspace)


def is_prepared(place: Path, *, version: str) -> bool:
    """Whether this version of MLflow has migrated the store."""
    marker = place / "prepared"
    has_store = (place / NAME).is_file() or find_database(place.parent) is not None
    return has_store and marker.is_file() and marker.read_text().strip() == _said(place, version=version)


def _said(place: Path, *, version: str) -> str:
    """What is written down once a version has migrated the store: of a database, which one."""
    database = find_database(place.parent)
    return version if database is None else f"{version} {database.shown}"


@contextmanager
def _turn(workspace: Path) -> Iterator[None]:
    """Hold off other machines that would migrate the same database."""
    database = find_database(workspace)
    if database is None:
        yield
        return
    until = time.monotonic() + LOCK_TIMEOUT_SECONDS
    while True:
        with database.turn("mlflow's tables") as mine:
            if mine:
                yield
                return
        if time.monotonic() > until:
            raise ServiceError(f"MLflow's tables in {database.shown} are being made by another machine; try again later")
        time.sleep(0.5)


def migrate(workspace: Path) -> None:
    """Create or upgrade every table, with the lock held. An older store is copied aside first.

    Raises WorkspaceError where the installed MLflow cannot use the store, or the store cannot be read or written.
    """
    import_mlflow()
    from mlflow.exceptions import MlflowException

    place, database = folder(workspace), find_database(workspace)
    place.mkdir(parents=True, exist_ok=True)
    try:
        if database is None:
            make_ready(place, artifacts=artifact_root(workspace), was_whole=(place / "prepared").is_file())
        else:
            _migrate_shared(database, workspace=workspace)
    except (MlflowException, sqlite3.Error, alembic_error(), sql_error(shared=database is not None)) as error:
        if database is not None:
            raise _unusable(error, where=f"the database {database.shown}") from error
        file = trouble(error, path=place / NAME, remedy=REMEDY)
        raise (file or _unusable(error, where=str(place / NAME))) from error


def _unusable(error: Exception, *, where: str) -> WorkspaceError:
    """What an error says that is none of the file's own: that the store is of a newer MLflow, or else what MLflow said."""
    said, _, _ = str(error).partition("\n")
    newer = said.startswith(UNKNOWN_REVISION)
    first = "a newer MLflow made it: install that, or " if newer else ""
    return WorkspaceError(
        f"{where}: MLflow {importlib.metadata.version('mlflow')} cannot use this store ({said}); {first}move the store "
        f"away and let `knockout doctor --repair` build it again"
    )


def _migrate_shared(database: Database, *, workspace: Path) -> None:
    """The same in a database that machines share, in which a migration is one transaction."""
    from mlflow.store.db import utils
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    uri = tracking_uri(workspace)
    if database.has("runs", schema="mlflow"):
        engine = utils.create_sqlalchemy_engine_with_retry(uri)
        if utils._get_schema_version(engine) != utils._get_latest_schema_revision():
            utils._upgrade_db(engine)  # what `mlflow db upgrade` does
        engine.dispose()
    # The constructor creates the tables of an empty database, and the default experiment.
    SqlAlchemyStore(uri, artifact_root(workspace)).engine.dispose()


def alembic_error() -> type[Exception]:
    """What the migration tool raises."""
    return importlib.import_module("alembic.util").CommandError


def sql_error(*, shared: bool) -> type[Exception]:
    """What the database raises when a migration does not fit its tables; of a shared one, not that it is out of reach."""
    errors = importlib.import_module("sqlalchemy.exc")
    return errors.ProgrammingError if shared else errors.SQLAlchemyError


def connect(workspace: Path) -> MlflowClient:
    """A client that writes to the workspace's store, which is made ready first."""
    uri = prepare(workspace)
    import_mlflow()
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def import_mlflow() -> None:
    """Import MLflow and its store (2 s), with its telemetry off and its deprecation warnings unsaid.

    Its store logs what the database says, with traceback and SQL, beside raising it; whoever calls it tells it in a line.
    """
    os.environ.update(TELEMETRY_OFF)
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", QUIET["MLFLOW_LOGGING_LEVEL"])
    logging.getLogger(STORE_LOG).setLevel(logging.CRITICAL)
    with warnings.catch_warnings(), uncollected():
        warnings.simplefilter("ignore")
        for module in STORE_MODULES:
            importlib.import_module(module)
