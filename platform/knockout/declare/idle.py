"""Variants that leave the baseline as it is, and settings of variants that no run is trained at.

The invariant: what is refused here would train the baseline again under another name, whatever the command line changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from knockout.declare.claim import BASELINE
from knockout.declare.document import Document, Mark
from knockout.declare.plan import Cell
from knockout.declare.study import LeaveOneOut, Study
from knockout.errors import Problem


def idle_variants(study: Study, *, document: Document, cells: Sequence[Cell]) -> Iterator[Problem]:
    """Variants that come to the baseline at every size, where a patch was written for them.

    A row or a grid of values (`one-factor`, `product`) may go through the baseline's own.
    """
    baselines = {cell.size: cell for cell in cells if cell.variant == BASELINE}
    for variant in dict.fromkeys(cell.variant for cell in cells if cell.variant != BASELINE):
        own = [cell for cell in cells if cell.variant == variant]
        written = variant in study.variants or isinstance(study.vary, LeaveOneOut)
        if written and baselines and all(same(cell, baselines[cell.size]) for cell in own):
            path = ("variants", variant) if variant in study.variants else ("vary",)
            rule = f"'{variant}' changes nothing against the baseline, every setting of which it has"
            yield _problem(".".join(path), document.mark(path), f"{rule}: change another one, or leave the variant out")


def searched_settings(study: Study, *, patches: Mapping[str, Document]) -> Iterator[Problem]:
    """Settings of a variant's own that the search of every variant overwrites."""
    ranges = study.tune.ranges if study.tune is not None else {}
    for variant, patch in patches.items():
        for path, place in _leaves(patch.data):
            if path in ranges:
                where = f"variants.{variant}.{'.'.join(place)}" if variant in study.variants else "vary"
                rule = f"the search of {path} overwrites what '{variant}' sets, so that no run is trained at it"
                yield _problem(where, patch.mark(place), f"{rule}: leave one of the two out")


def same(cell: Cell, other: Cell) -> bool:
    """Whether two cells train one and the same model in one and the same way."""
    return (cell.architecture, cell.recipe) == (other.architecture, other.recipe)


def _leaves(data: Mapping[str, Any], *, base: tuple[str, ...] = ()) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The dotted path of every value, and the keys under which it is written."""
    for key, value in data.items():
        place = (*base, key)
        if isinstance(value, Mapping):
            yield from _leaves(value, base=place)
        else:
            yield ".".join(place), place


def _problem(path: str, mark: Mark, rule: str) -> Problem:
    return Problem(mark.file, mark.line, mark.column, path, rule)
