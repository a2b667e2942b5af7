"""How far the metric files of a run that is not sealed reach.

The invariant: a step counts only where all steps before it are there too, in files that can be read and are the run's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from knockout.errors import WorkspaceError
from knockout.ledger.kinds import is_file
from knockout.training.metrics import read_own, segments
from knockout.training.spec import METRICS, SEGMENTS


@dataclass(frozen=True)
class Coverage:
    """The steps whose metrics a run has kept, from its first one on."""

    step: int
    """The last of them; 0 where there is none."""
    gap: str | None = None
    """Why they reach no further, where something lies beyond."""

    @property
    def said(self) -> str:
        """Why a later step does not count."""
        return self.gap or f"the metrics end at step {self.step}"


@dataclass(frozen=True)
class Gap:
    """Steps that are missing, one after the other."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"step {self.first}" if self.first == self.last else f"the steps {self.first} to {self.last}"


def cover(folder: Path) -> Coverage:
    """How far the metrics reach from which a run in `folder` could go on; every file is read once."""
    if is_file(folder / METRICS):
        try:
            return _joined(folder / METRICS, run=folder.name)
        except WorkspaceError:
            pass  # it died while it wrote that file: the segments are there still
    step = 0
    for path in segments(folder):
        try:
            steps = _steps(path, run=folder.name)
        except (WorkspaceError, FileNotFoundError) as error:
            return Coverage(step, str(error))
        wanted = range(step + 1, int(path.stem) + 1)
        if (missing := find_gap(steps, wanted=wanted)) is not None:
            return Coverage(step, f"{folder / SEGMENTS} does not hold {missing}")
        if len(steps) != len(wanted):
            return Coverage(step, f"{path} holds steps of other segments")
        step = int(path.stem)
    return Coverage(step)


def faults(folder: Path) -> Iterator[tuple[Path, str]]:
    """The metric files of a run that cannot be read or are another run's, and in words what is wrong with each."""
    sealed = [folder / METRICS] if is_file(folder / METRICS) else []
    for path in (*sealed, *segments(folder)):
        try:
            read_own(path, run=folder.name)
        except (WorkspaceError, FileNotFoundError) as error:
            yield path, str(error)


def find_gap(steps: Iterable[int], *, wanted: range) -> Gap | None:
    """The first of the wanted steps that are missing; None where all are there."""
    missing = sorted(set(wanted).difference(steps))
    if not missing:
        return None
    end = next((before for before, after in pairwise(missing) if after != before + 1), missing[-1])
    return Gap(missing[0], end)


def _joined(path: Path, *, run: str) -> Coverage:
    steps = _steps(path, run=run)
    last = steps[-1] if steps else 0
    missing = find_gap(steps, wanted=range(1, last + 1))
    return Coverage(last) if missing is None else Coverage(missing.first - 1, f"{path} does not hold {missing}")


def _steps(path: Path, *, run: str) -> list[int]:
    return sorted(set(read_own(path, run=run)["step"].to_pylist()))
