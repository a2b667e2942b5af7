"""The evaluations of a run, read from its folder while it trains."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc

from knockout.search.trial import Curve
from knockout.training.metrics import read_metrics, segments
from knockout.training.spec import METRICS


class RunCurve:
    """A metric of a run at each evaluation so far. Asking again costs little while nothing new was written."""

    def __init__(self, folder: Path, *, metric: str) -> None:
        self.folder = folder
        self.metric = metric
        self.seen: tuple[str, ...] = ()
        self.curve: Curve = ()

    def read(self) -> Curve:
        """(step, value) in order; empty before the first evaluation."""
        written = (*(path.name for path in segments(self.folder)), *(["sealed"] if (self.folder / METRICS).exists() else []))
        if written != self.seen:
            rows = read_metrics(self.folder).filter(pc.field("metric") == self.metric)
            self.seen = written
            self.curve = tuple(sorted(zip(rows["step"].to_pylist(), rows["value"].to_pylist(), strict=True)))
        return self.curve
