"""Short calibrations of cells of which nothing is known yet, remembered in the ledger.

The invariant: what a study spends most on is timed first, and when the time for it is over the rest goes by the closed
form. As many calibrations run side by side as runs will.
"""

from __future__ import annotations

import json
import logging
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from knockout.declare.plan import Cell
from knockout.ledger.identity import meaning
from knockout.ledger.speeds import CALIBRATION, Speed, remember
from knockout.ledger.store import Ledger
from knockout.ledger.workspace import Workspace, make_folder, write_json
from knockout.services.environment import quiet_environment
from knockout.submission.estimating import closed_form
from knockout.training.launcher import Nursery
from knockout.training.spec import MEANING, SPEED, Runtime

BUDGET_SECONDS = 5.0
"""For the calibrations of one plan, after the start of their parent process."""
STEPS = 10
"""About what a calibration costs, in steps."""
PATIENCE = 6.0
"""A calibration that takes so many times the budget is given up."""

log = logging.getLogger(__name__)


def silent(done: int, total: int) -> None:
    """Shows nothing."""


def show_calibration(done: int, total: int) -> None:
    """A line on standard error that grows on a terminal, and stands once elsewhere."""
    if sys.stderr.isatty():
        end = "\r\x1b[K" if done == total else ""
        print(f"\r\x1b[Ktiming cells that never ran here: {done} of {total}{end}", end="", file=sys.stderr, flush=True)
    elif done == 0:
        print(f"timing {total} cells that never ran here, for a few seconds", file=sys.stderr)


@dataclass
class Calibrator:
    """Times cells. Its parent process starts with the first one, and ends with the context."""

    workspace: Workspace
    progress: Callable[[int, int], None] = silent
    """Told how many calibrations of how many are done."""
    budget_seconds: float = BUDGET_SECONDS
    nursery: Nursery | None = field(default=None, init=False)

    def __enter__(self) -> Calibrator:
        return self

    def __exit__(self, *_: object) -> None:
        if self.nursery is not None:
            self.nursery.close()
        shutil.rmtree(self.workspace.folder / "calibrations", ignore_errors=True)

    def calibrate(self, cells: Mapping[str, Cell], *, exam_tokens: int, slots: int, ledger: Ledger) -> dict[str, Speed]:
        """Time a cell of each shape, those first that come first, for as long as the budget lasts.

        Raises:
            RunError: the parent of the processes did not start.
        """
        wanted = [
            name
            for name, cell in cells.items()
            if STEPS * closed_form(cell, exam_tokens=exam_tokens).step_seconds < self.budget_seconds
        ]
        if not wanted:
            return {}
        nursery = self._nursery()
        device = "cuda" if nursery.num_gpus() else "cpu"
        began, found = time.monotonic(), {}
        for place in range(0, len(wanted), slots):
            self.progress(place, len(wanted))
            if place and time.monotonic() - began > self.budget_seconds:
                break
            together = wanted[place : place + slots]
            folders = [self._declare(name, cell=cells[name], exam_tokens=exam_tokens) for name in together]
            for name, speed in zip(together, self._time(folders, nursery=nursery, device=device), strict=True):
                if speed is not None:
                    found[name] = speed
                    remember(ledger, shape=name, origin=CALIBRATION, speed=speed)
        self.progress(len(wanted), len(wanted))
        return found

    def _nursery(self) -> Nursery:
        if self.nursery is None:
            folder = self.workspace.folder
            self.nursery = Nursery(quiet_environment(folder), log=folder / "nursery.log")
        return self.nursery

    def _declare(self, name: str, *, cell: Cell, exam_tokens: int) -> Path:
        folder = self.workspace.folder / "calibrations" / name
        make_folder(folder)
        data = meaning(
            architecture=cell.architecture,
            recipe=cell.recipe,
            corpus="random tokens",
            seed=0,
            evaluation={"tokens": exam_tokens},
        )
        write_json(folder / MEANING, data=data)
        return folder

    def _time(self, folders: Sequence[Path], *, nursery: Nursery, device: str) -> list[Speed | None]:
        """What calibrations that run side by side find; None for one that fails or takes far too long."""
        runtime = Runtime(corpus="", device=device)
        children = [nursery.launch(folder, runtime=runtime, environment={}, task="calibrate") for folder in folders]
        until = time.monotonic() + PATIENCE * self.budget_seconds
        for child in children:
            if not child.ended.wait(max(0.0, until - time.monotonic())):
                nursery.signal(child, 9)
        return [_read(folder) for folder in folders]


def _read(folder: Path) -> Speed | None:
    path = folder / SPEED
    if not path.exists():
        log.debug("%s: nothing was timed; its log says why", folder)
        return None
    return Speed(**json.loads(path.read_text()))
