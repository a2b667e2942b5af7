"""Taking runs out of an MLflow store, with their files.

The invariant: only runs of the given identities go, wherever they are shown; and their artifacts only from inside the
workspace.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.parse import unquote, urlparse

from knockout.services.relocation import REMEDY
from knockout.services.sqlite import trouble
from knockout.tracking import naming
from knockout.tracking.inspection import Shown, database, is_there, shown
from knockout.tracking.store import connect, folder


class Remover:
    """Removes runs one after the other; MLflow is imported when the first one is there."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._runs: dict[str, list[Shown]] = {}
        self._client = None
        there = shown(workspace, key=naming.IDENTITY) if is_there(workspace) else {}
        for (_, identity), run in there.items():
            self._runs.setdefault(identity, []).append(run)

    def files(self, identity: str) -> list[Path]:
        """The folders of a run's artifacts, one for each study that shows it."""
        root = folder(self._workspace) / "artifacts"
        places = [Path(unquote(urlparse(run.artifacts).path)).parent for run in self._runs.get(identity, ())]
        return [place for place in places if place.is_dir() and place.resolve().is_relative_to(root)]

    def remove(self, identity: str) -> None:
        """Take every run of an identity out of the store, for good.

        Raises:
            WorkspaceError: the store cannot be written: its disk is full, or another process holds it.
        """
        places = self.files(identity)
        for run in self._runs.get(identity, ()):
            self._delete(run.run_id)
        self._runs.pop(identity, None)
        for place in places:
            shutil.rmtree(place)

    def _delete(self, run_id: str) -> None:
        try:
            self._client = self._client or connect(self._workspace)
            self._client._tracking_client.store._hard_delete_run(run_id)  # what `mlflow gc` does
        except Exception as error:  # MLflow's, around SQLAlchemy's, around SQLite's
            if (found := trouble(error, path=database(self._workspace), remedy=REMEDY)) is None:
                raise
            raise found from None
