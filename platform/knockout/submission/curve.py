"""The evaluations of a run, read while it trains, here or on another machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from knockout.search.trial import Curve
from knockout.training.metrics import read_metrics, segments, series
from knockout.training.spec import METRICS


class RunCurve:
    """A metric of a run at each evaluation so far. Asking again costs little while nothing new was written.

    `elsewhere` gives a second folder, with what another machine has told of the run.
    """

    def __init__(self, folder: Path, *, metric: str, elsewhere: Callable[[], Path] | None = None) -> None:
        self.folder = folder
        self.metric = metric
        self.elsewhere = elsewhere
        self.seen: tuple[str, ...] = ()
        self.curve: Curve = ()

    def read(self) -> Curve:
        """(step, value) in order; empty before the first evaluation."""
        folders = [self.folder, *([self.elsewhere()] if self.elsewhere is not None else [])]
        written = tuple(name for folder in folders for name in ("in", *_written(folder)))
        if written != self.seen:
            values = {step: value for folder in folders for step, value in self._rows(folder)}
            self.seen = written
            self.curve = tuple(sorted(values.items()))
        return self.curve

    def _rows(self, folder: Path) -> list[tuple[int, float]]:
        return [(point.step, point.value) for point in series(read_metrics(folder), metric=self.metric)]


def _written(folder: Path) -> list[str]:
    """The names of what a run has written."""
    return [*(path.name for path in segments(folder)), *(["sealed"] if (folder / METRICS).exists() else [])]
