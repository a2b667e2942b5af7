"""About how long a plan takes here.

The invariant: every run counts with what is known of its own shape on this machine, at this moment; how far trials go that
pruning may end is not known of any, and they count with the middle of what they may take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from knockout.declare.plan import Cell
from knockout.ledger.speeds import recall
from knockout.ledger.store import Ledger
from knockout.submission.calibrating import Calibrator
from knockout.submission.estimating import Pace, cell_shape, paces, run_seconds
from knockout.submission.schedule import makespan
from knockout.submission.slots import usable_slots

START_SECONDS = 8.0
"""Of a submission that trains something: the parent of its runs, and the way to the report."""
UNKNOWN_SHARE = 0.2
"""Cells of which nothing is known are calibrated when they are more than this part of the time."""


@dataclass(frozen=True)
class Duration:
    """How long the runs of a plan take."""

    core_seconds: float
    """Of all of them one after the other, on one core or GPU."""
    seconds: float
    """Of the submission, with `slots` runs at a time; the trials of a cell follow one another."""
    slots: int
    measured_share: float
    """How much of it rests on runs and calibrations on this machine, and not on a closed form."""


def duration(
    to_do: Sequence[Cell],
    *,
    searches: Sequence[tuple[Cell, float]],
    exam_tokens: int,
    ledger: Ledger,
    calibrator: Calibrator | None,
    devices: int = 1,
) -> Duration:
    """How long runs of the cells `to_do` take, after the searches, each a cell with the whole runs that it has left.

    What is known is of one device; a run on several is taken to be as many times as fast.

    Raises:
        RunError: the parent of the calibrations did not start.
    """
    there, work = usable_slots(), _work([*((cell, 1) for cell in to_do), *searches], exam_tokens=exam_tokens)
    found = _paces(work, exam_tokens=exam_tokens, slots=there, ledger=ledger, calibrator=calibrator)
    slots = max(1, there // devices)

    def seconds(cell: Cell) -> float:
        return run_seconds(cell, speed=found[cell_shape(cell, exam_tokens=exam_tokens)].speed)

    tuning = makespan([runs * seconds(cell) / devices for cell, runs in searches], slots=slots)
    judging = makespan([seconds(cell) / devices for cell in to_do], slots=slots)
    return Duration(
        core_seconds=sum(map(seconds, to_do)) + sum(runs * seconds(cell) for cell, runs in searches),
        seconds=(START_SECONDS if work else 0.0) + tuning + judging,
        slots=slots,
        measured_share=1.0 - _unknown_share(work, paces=found),
    )


@dataclass(frozen=True)
class _Shape:
    """All runs of one shape: their cells, each with how many."""

    cells: tuple[tuple[Cell, float], ...]

    @property
    def cell(self) -> Cell:
        """Any of them: they take the same for a step and an exam."""
        return self.cells[0][0]

    def seconds(self, pace: Pace) -> float:
        """What all of them take."""
        return sum(runs * run_seconds(cell, speed=pace.speed) for cell, runs in self.cells)


def _work(counted: Collection[tuple[Cell, float]], *, exam_tokens: int) -> dict[str, _Shape]:
    shapes: dict[str, list[tuple[Cell, float]]] = {}
    for cell, runs in counted:
        shapes.setdefault(cell_shape(cell, exam_tokens=exam_tokens), []).append((cell, runs))
    return {name: _Shape(tuple(cells)) for name, cells in shapes.items()}


def _paces(
    work: Mapping[str, _Shape], *, exam_tokens: int, slots: int, ledger: Ledger, calibrator: Calibrator | None
) -> dict[str, Pace]:
    """The pace of each shape; what weighs much and is not known is calibrated, the heaviest first."""
    cells = {name: shape.cell for name, shape in work.items()}
    known = recall(ledger, shapes=cells)
    found = paces(cells.values(), exam_tokens=exam_tokens, known=known)
    if calibrator is None or _unknown_share(work, paces=found) <= UNKNOWN_SHARE:
        return found
    weights = Counter({name: work[name].seconds(pace) for name, pace in found.items() if not pace.measured})
    names = _unlike_first([name for name, _ in weights.most_common()], paces=found)
    unknown = {name: cells[name] for name in names}
    timed = calibrator.calibrate(unknown, exam_tokens=exam_tokens, slots=slots, ledger=ledger)
    return paces(cells.values(), exam_tokens=exam_tokens, known=known | timed)


def _unlike_first(names: Sequence[str], *, paces: Mapping[str, Pace]) -> list[str]:
    """The names in their order, but those last whose step the closed form gives the same as an earlier one's."""
    seen: dict[float, str] = {}
    for name in names:
        seen.setdefault(round(paces[name].speed.step_seconds, 4), name)
    return [*seen.values(), *(name for name in names if name not in set(seen.values()))]


def _unknown_share(work: Mapping[str, _Shape], *, paces: Mapping[str, Pace]) -> float:
    """How much of the time of all runs is known by the closed form alone."""
    seconds = {name: shape.seconds(paces[name]) for name, shape in work.items()}
    total = sum(seconds.values())
    return sum(seconds[name] for name, pace in paces.items() if not pace.measured) / total if total else 0.0
