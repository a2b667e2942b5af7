"""Verdicts as a table for a terminal, by whatever they were reached.

The invariant: nothing is cut off; a narrow terminal loses the columns of numbers, which the sentence beside them tells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from knockout.report import words
from knockout.report.fitting import Fitting, fitting

STYLES = {
    "supported": "bold green",
    "refuted": "bold red",
    "inconclusive": "bold yellow",
    "not run": "bold dim",
}
NUMBERS = ("effect", "seeds", "cost")
ROOM = {True: 36, False: 24}
"""Characters of a line of the reason with and without the numbers before it, at least."""


@dataclass(frozen=True)
class OutcomeRow:
    """A verdict in words: what it is about, its outcome, effect with interval, seeds and cost, and why."""

    names: tuple[str, ...]
    outcome: str
    numbers: tuple[str, str, str]
    why: str


def numbers_of(found: Mapping[str, Any] | None) -> tuple[str, str, str]:
    """Effect with interval, seeds and cost of a verdict as reports have it; None where there is none."""
    if found is None:
        return words.NONE, words.NONE, words.NONE
    return words.effect(found), str(found["num_seeds"]), words.duration(found["cost_seconds"])


def noted(said: str, note: str | None) -> str:
    """What is said of a verdict, and its note in brackets."""
    return f"{said} ({note})" if note else said


def outcome_table(rows: Sequence[OutcomeRow], *, headings: Sequence[str], console: Console) -> Fitting:
    """One row a verdict, for this console's width; `headings` are those of the names."""
    whole = _table(rows, headings=headings, numbers=True, console=console)
    return whole if whole.fits(console.width) else _table(rows, headings=headings, numbers=False, console=console)


def _table(rows: Sequence[OutcomeRow], *, headings: Sequence[str], numbers: bool, console: Console) -> Fitting:
    table = fitting(console)
    for heading in (*headings, "verdict"):
        table.add_column(heading, no_wrap=True)
    for heading in NUMBERS if numbers else ():
        table.add_column(heading, justify="left" if heading == "effect" else "right", no_wrap=True)
    table.add_column("why", overflow="fold", min_width=ROOM[numbers], ratio=1)
    for row in rows:
        outcome = Text(row.outcome, style=STYLES[row.outcome])
        table.add_row(*row.names, outcome, *(row.numbers if numbers else ()), row.why)
    return table
