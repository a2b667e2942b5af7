"""How long the parts of a run take on this machine: from finished runs, and from short calibrations.

The invariant: a figure is remembered for one shape of computation, one machine and one set of versions, and used for no
other.
"""

from __future__ import annotations

import hashlib
import platform
import statistics
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from knockout import __version__
from knockout.declare.plain import canonical
from knockout.ledger.dialects import insert
from knockout.ledger.store import Ledger
from knockout.ledger.tables import speeds, telling

CALIBRATION = "calibration"
"""The origin of a figure that no run gave."""
NEWEST = 9
"""Runs of a shape whose median is taken."""
_COMPUTED = ("batch", "accumulate", "precision", "compile", "loss", "packing")
"""What of a recipe a step's computation depends on, where the recipe says it."""


@dataclass(frozen=True)
class Speed:
    """Seconds of a run's parts."""

    start_seconds: float
    """From the beginning of its process to the first step."""
    step_seconds: float
    """Of an optimizer step."""
    evaluation_seconds: float
    """Of an evaluation with its checkpoint."""

    def run_seconds(self, *, num_steps: int, num_evaluations: int) -> float:
        """Of a whole run."""
        return self.start_seconds + num_steps * self.step_seconds + num_evaluations * self.evaluation_seconds


def shape(meaning: Mapping[str, Any]) -> str:
    """What of a run's meaning decides how long its parts take, as a digest: not its seed, its budget or its rate."""
    architecture = {name: value for name, value in meaning["architecture"].items() if name != "init"}
    recipe = {name: meaning["recipe"][name] for name in _COMPUTED if name in meaning["recipe"]}
    computed = {"architecture": architecture, "recipe": recipe, "exam": meaning["evaluation"]["tokens"]}
    return hashlib.sha256(canonical(computed).encode()).hexdigest()[:20]


def remember(ledger: Ledger, *, shape: str, origin: str, speed: Speed) -> None:
    """Keep a figure; `origin` is the identity of the run that gave it, or CALIBRATION, whose newest figure counts.

    Raises:
        WorkspaceError: the ledger cannot be written.
    """
    parts = {
        "start_seconds": speed.start_seconds,
        "step_seconds": speed.step_seconds,
        "evaluation_seconds": speed.evaluation_seconds,
        "measured": time.time(),
    }
    row = {"machine": processor(), "versions": versions(), "shape": shape, "origin": origin, **parts}
    change = (
        insert(speeds, bind=ledger.engine)
        .values(**row)
        .on_conflict_do_update(index_elements=list(speeds.primary_key), set_=parts)
    )
    with telling(ledger.workspace, done="written"), ledger.engine.begin() as connection:
        connection.execute(change)


def recall(ledger: Ledger, *, shapes: Collection[str]) -> dict[str, Speed]:
    """What is known of some shapes on this machine: the median of the newest runs, or else what a calibration said.

    Raises:
        WorkspaceError: the ledger cannot be read.
    """
    with telling(ledger.workspace, done="read"), ledger.engine.connect() as connection:
        return {name: found for name in shapes if (found := _recall(connection, shape=name)) is not None}


@cache
def processor() -> str:
    """The name of this machine's processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor())


@cache
def versions() -> str:
    """Those on which speed depends."""
    return f"knockout {__version__}, torch {metadata.version('torch')}"


def _recall(connection: Connection, *, shape: str) -> Speed | None:
    known = speeds.c
    query = sql.select(known.origin, known.start_seconds, known.step_seconds, known.evaluation_seconds).where(
        known.machine == processor(), known.versions == versions(), known.shape == shape
    )
    rows = list(connection.execute(query.order_by(known.measured.desc())))
    rows = [row for row in rows if row.origin != CALIBRATION][:NEWEST] or rows
    parts = [(row.start_seconds, row.step_seconds, row.evaluation_seconds) for row in rows]
    return Speed(*(statistics.median(part) for part in zip(*parts, strict=True))) if parts else None
