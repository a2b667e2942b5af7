"""Verdicts of training from several studies, in one table for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, RenderableType

from knockout.report import words
from knockout.report.outcomes import STYLES, OutcomeRow, noted, numbers_of, outcome_table
from knockout.report.spent import Spent


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


def trained_verdicts(rows: Sequence[TrainedVerdict], *, console: Console) -> RenderableType:
    """One row a claim and size, for this console's width: study, verdict, effect with interval, seeds, cost, and why."""
    told = [OutcomeRow((row.claim, row.study, row.size), row.outcome, numbers_of(row.found), _why(row)) for row in rows]
    return outcome_table(told, headings=("claim", "study", "size"), console=console)


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


def _why(row: TrainedVerdict) -> str:
    return noted(row.reason, row.found["note"] if row.found is not None else None)


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
