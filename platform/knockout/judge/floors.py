"""Cells that have learnt nothing: their loss is the corpus' unigram cross-entropy, or more.

The invariant: such a loss is a bound and no measurement. Who has learnt nothing has lost all there was to lose, so that the
loss says at least how bad the cell is, and never how bad.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from knockout.judge.records import RunRecord, final_value, of_cell

Cell = tuple[str, str]
"""A variant at a size."""
Floors = Mapping[str, Mapping[str, float]]
"""For each size, the corpus' cross-entropies by name, nats per token."""


@dataclass(frozen=True)
class Unlearnt:
    """A cell that has learnt nothing: its mean val_loss over finished seeds, and the unigram floor, nats per token."""

    variant: str
    size: str
    loss: float
    floor: float


def unlearnt(cells: Iterable[Cell], *, records: Sequence[RunRecord], floors: Floors, margin: float) -> dict[Cell, Unlearnt]:
    """Those of these cells whose mean val_loss over finished seeds is not under the unigram floor by more than the margin.

    A cell that sees the future has learnt to look, whatever its generation_loss is. Where the corpus' own entropy rate is as
    high as the floor there is nothing to learn, and no cell is blamed for it.
    """
    found = {cell: _at_floor(cell, records=records, floors=floors.get(cell[1], {}), margin=margin) for cell in cells}
    return {cell: one for cell, one in found.items() if one is not None}


def _at_floor(cell: Cell, *, records: Sequence[RunRecord], floors: Mapping[str, float], margin: float) -> Unlearnt | None:
    floor, least = floors.get("unigram"), floors.get("entropy_rate", -math.inf)
    if floor is None or floor - least <= margin:
        return None
    runs = of_cell(records, variant=cell[0], size=cell[1]).values()
    values = [value for run in runs if (value := final_value(run, metric="val_loss")) is not None and math.isfinite(value)]
    loss = sum(values) / len(values) if values else -math.inf
    return Unlearnt(*cell, loss, floor) if floor - loss <= margin else None
