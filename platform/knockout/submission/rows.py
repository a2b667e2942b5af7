"""The rows that a run's folder gives to a mirror.

The invariant: files that cannot be read end nothing: the mirror shows what there is beside them.
"""

from __future__ import annotations

import logging
from pathlib import Path

from knockout.errors import WorkspaceError
from knockout.submission.describing import metric_rows
from knockout.training.metrics import read_metrics

log = logging.getLogger(__name__)


def readable_rows(folder: Path) -> tuple[tuple[str, int, float, float], ...]:
    """The metrics that a run has written so far; none where one of its files cannot be read, which is told in the log."""
    try:
        return tuple(metric_rows(read_metrics(folder)))
    except WorkspaceError as error:
        log.warning("%s; MLflow is shown no curve of it", error)
        return ()
