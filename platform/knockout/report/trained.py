"""Verdicts of training from several studies, in one table for a terminal.

The invariant: nothing is cut off; a narrow terminal loses columns that the sentence beside them repeats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from knockout.report import words
from knockout.report.spent import Spent

STYLES = {
    "supported": "bold green",
    "refuted": "bold red",
    "inconclusive": "bold yellow",
    "not run": "bold dim",
}
_WIDE = 110


@dataclass(frozen=True)
class TrainedVerdict:
    """One claim of a study at a size, or at the sizes that it has not been trained at."""

    study: str
    claim: str
    says: str
    size: str
    outcome: str
    reason: str
    command: str
    """Brings the study to this claim's verdict, from whatever there is."""
    found: Mapping[str, Any] | None
    """The verdict as the study's report has it; None where there is none."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with the keys that verdicts of calculation have too."""
        found = self.found or {}
        return {
            "id": self.claim,
            "kind": "train",
            "study": self.study,
            "size": self.size,
            "says": self.says,
            "verdict": self.outcome,
            "effect": found.get("effect"),
            "interval": found.get("interval"),
            "p": found.get("p"),
            "metric": found.get("metric"),
            "seeds": found.get("num_seeds", 0),
            "cost_seconds": found.get("cost_seconds", 0.0),
            "note": found.get("note"),
            "source": found.get("source"),
            "detail": self.reason,
            "command": self.command,
        }


def trained_verdicts(rows: Sequence[TrainedVerdict], *, console: Console) -> Table:
    """One row a claim and size, for this console's width: study, verdict, effect with interval, seeds, cost, and why."""
    wide = console.width >= _WIDE
    table = _table(console)
    for heading in ("claim", "study", "size", "verdict"):
        table.add_column(heading, no_wrap=wide or heading == "verdict", overflow="fold")
    if wide:
        table.add_column("effect", no_wrap=True)
        table.add_column("seeds", justify="right")
        table.add_column("cost", justify="right", no_wrap=True)
    table.add_column("why", overflow="fold", ratio=1)
    for row in rows:
        table.add_row(
            Text(row.claim),
            Text(row.study),
            Text(row.size),
            Text(row.outcome, style=STYLES[row.outcome]),
            *(map(Text, _numbers(row.found)) if wide else ()),
            Text(_why(row)),
        )
    return table


def totals(rows: Sequence[TrainedVerdict], *, spent: Spent) -> str:
    """`9 training claims: 5 supported, 1 refuted, 3 not run; 24 runs and 30 trials, 41 min 05 s of training`."""
    counts = [(outcome, sum(row.outcome == outcome for row in rows)) for outcome in STYLES]
    said = ", ".join(f"{number} {outcome}" for outcome, number in counts if number)
    claims = len({(row.study, row.claim) for row in rows})
    return f"{claims} training claim{'' if claims == 1 else 's'}: {said}; {cost(spent)}"


def cost(spent: Spent) -> str:
    """`6 runs and 10 trials, 9 min 12 s of training`; with nothing trained, so."""
    if not spent.num_runs + spent.num_trials:
        return "nothing trained"
    trials = f" and {_many(spent.num_trials, 'trial')}" if spent.num_trials else ""
    return f"{_many(spent.num_runs, 'run')}{trials}, {words.duration(spent.seconds)} of training"


def _numbers(found: Mapping[str, Any] | None) -> tuple[str, str, str]:
    if found is None:
        return words.NONE, words.NONE, words.NONE
    return words.effect(found), str(found["num_seeds"]), words.duration(found["cost_seconds"])


def _why(row: TrainedVerdict) -> str:
    note = row.found["note"] if row.found is not None else None
    return f"{row.reason} ({note})" if note else row.reason


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _table(console: Console) -> Table:
    """Boxed on a terminal; aligned plain text elsewhere."""
    if console.is_terminal:
        return Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    return Table(box=None, pad_edge=False, header_style="", padding=(0, 2, 0, 0))
