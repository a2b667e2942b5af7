"""What a run goes on from.

The invariant: a checkpoint counts only where it loads, is the run's own and its network's, and the metrics of all steps up
to it lie beside it. Otherwise an older one does, otherwise the run is trained from its start; what was passed over is told
and taken away, so that no later process comes upon it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from knockout.errors import WorkspaceError
from knockout.ledger.workspace import write_atomically
from knockout.training.checkpoints import drop_old, load_checkpoint
from knockout.training.covering import cover
from knockout.training.metrics import segments
from knockout.training.result import checkpoint_files
from knockout.training.spec import PASSED_OVER

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Start:
    """Where a run goes on."""

    state: dict[str, Any] = field(default_factory=dict)
    """Of the checkpoint; empty at the start of the run."""
    passed_over: tuple[str, ...] = ()
    """Why newer checkpoints do not count, newest first."""

    @property
    def step(self) -> int:
        """Optimizer steps that the run has taken by then."""
        return int(self.state.get("step", 0))

    @property
    def said(self) -> str | None:
        """In a line what was passed over, or None where nothing was."""
        if not self.passed_over:
            return None
        begins = f"goes on from step {self.step}" if self.step else "is trained from its start"
        return f"{begins}: {'; '.join(self.passed_over)}"


def find_start(folder: Path, *, network: nn.Module) -> Start:
    """The newest checkpoint that a run in `folder` with this network can go on from. Changes nothing."""
    passed, paths = list[str](), checkpoint_files(folder)
    if not paths and len(written := segments(folder)) > 1:  # of one the checkpoint may have been about to be written
        passed.append(f"its checkpoints are gone, though its metrics reach step {int(written[-1].stem)}")
    covered = cover(folder) if paths else None
    for path in reversed(paths):
        if covered is not None and int(path.stem) > covered.step:
            passed.append(f"{path} does not count, since {covered.said}")
            continue
        try:
            state = load_checkpoint(path)
        except WorkspaceError as error:
            passed.append(str(error))
            continue
        if _fits(state, network=network):
            return Start(state, tuple(passed))
        passed.append(f"{path} holds another network")
    return Start(passed_over=tuple(passed))


def begin(folder: Path, *, start: Start) -> None:
    """Tell what was passed over, and take away the checkpoints beyond the start, and what a dead process had yet to drop.

    For whoever has the folder alone.
    """
    if start.said is not None:
        log.warning("%s %s", folder, start.said)
        write_atomically(folder / PASSED_OVER, text=f"{start.said}\n")
    for path in reversed(checkpoint_files(folder)):
        if int(path.stem) > start.step:
            path.unlink()
    drop_old(folder)


def _fits(state: dict[str, Any], *, network: nn.Module) -> bool:
    """Whether a checkpoint's tensors are those of a network."""
    kept = state.get("network")
    if not isinstance(kept, dict) or "optimizer" not in state:
        return False
    shapes = {name: tuple(value.shape) for name, value in kept.items()}
    return shapes == {name: tuple(value.shape) for name, value in network.state_dict().items()}
