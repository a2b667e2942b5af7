"""How far a running run is: sixteen bytes that its process overwrites and anyone may read."""

from __future__ import annotations

import struct
from pathlib import Path

from knockout.training.spec import RESULT

PROGRESS = "progress"
_FORMAT = "<qd"


def encode_progress(*, step: int, train_loss: float) -> bytes:
    """The bytes that say: after `step` optimizer steps, the last one's loss was this."""
    return struct.pack(_FORMAT, step, train_loss)


def read_progress(folder: Path) -> tuple[int, float] | None:
    """The newest (step, train_loss) of a running run, at most a second old; None before its first steps, and once it has a
    result."""
    if (folder / RESULT).exists():
        return None
    try:
        return struct.unpack(_FORMAT, (folder / PROGRESS).read_bytes())
    except (OSError, struct.error):
        return None
