"""Verdicts and final metrics for a terminal.

The invariant: nothing is cut off. A narrow terminal loses columns that the sentence below repeats, and
where the output is no terminal the tables are plain text without boxes or colour.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text

from knockout.judge.controls import ControlResult
from knockout.judge.flag import DOUBTS
from knockout.judge.records import RunRecord
from knockout.judge.verdict import Verdict
from knockout.report import words
from knockout.report.fitting import Fitting, fitting
from knockout.report.outcomes import OutcomeRow, noted, numbers_of, outcome_table
from knockout.report.searches import Search, pruning_check, study_saving

_WIDE = 100
_NARROW = 70
_LEAST = 12
"""Characters of a name that stay together however narrow the terminal is."""


def verdict_table(verdicts: Sequence[Verdict], *, console: Console) -> RenderableType:
    """One row a claim and size, for this console's width: verdict, effect with interval, seeds, cost, and why."""
    rows = [
        OutcomeRow((one.claim, one.size), one.outcome, numbers_of(asdict(one)), noted(one.reason, one.note))
        for one in verdicts
    ]
    return outcome_table(rows, headings=("claim", "size"), console=console)


def control_lines(controls: Sequence[ControlResult]) -> Iterator[Text]:
    """The controls that fail, in a colour of alarm, and in a word those that hold."""
    for control in controls:
        if control.passed is False:
            yield Text(f"A control fails, so weigh every verdict here: {control.sentence}", style="bold red")
    if held := [control for control in controls if control.passed]:
        yield Text(f"controls held: {', '.join(f'{control.control} at {control.size}' for control in held)}", style="dim")


def fairness_lines(flags: Sequence[Mapping[str, Any]]) -> Iterator[Text]:
    """What verdicts may rest on beside what is asked; `flags` are those of a report's facts.

    A note is told here only where results gave reason for it: what follows from the plan was told with the plan.
    """
    for flag in flags:
        if flag["level"] == "serious":
            yield Text(f"Fairness: {flag['sentence']}.", style="bold yellow")
        elif flag["kind"] in DOUBTS:
            yield Text(f"Note: {flag['sentence']}.")


def tuning_lines(searches: Sequence[Search]) -> Iterator[Text]:
    """What the searches of all variants came to together; nothing where none were."""
    if searches:
        yield Text(f"tuning: {study_saving(searches)}", style="dim")
        if checked := pruning_check(searches):
            yield Text(f"pruning: {checked}", style="dim")


def metric_table(records: Sequence[RunRecord], *, console: Console) -> Fitting:
    """Final metrics by size and variant, mean ± sd over finished seeds; what diverged or failed is named."""
    # Polars costs 0.14 s, which a table of verdicts alone need not wait for.
    from knockout.report import figures, tables

    rows = tables.finals(records)
    recorded = [name for name in figures.FINAL_METRICS if any(name in row["metrics"] for row in rows)]
    seeing = any(not row["causal"] for row in rows)
    columns = [name for name in recorded if seeing or name != "generation_loss"]
    if console.width < _NARROW:
        columns = [name for name in columns if name in ("val_loss", "generation_loss")]
    table = fitting(console)
    for heading in ("size", "variant"):
        longest = max((len(row[heading]) for row in rows), default=0)
        table.add_column(heading, overflow="fold", min_width=min(longest, _LEAST))
    for heading in (*columns, "done"):
        table.add_column(heading, justify="right", no_wrap=True)
    gaps: list[str] = []
    for row in rows:
        values = (_value(row["metrics"].get(name), console=console) for name in columns)
        name = row["variant"] if row["causal"] else f"{row['variant']} (sees the future)"
        table.add_row(*map(Text, (row["size"], name, *values, f"{row['num_done']} of {row['num_runs']}")))
        gaps += [f"{row['variant']} · {row['size']} · {gap}" for gap in (*row["diverged"], *row["unfinished"])]
    if gaps:
        table.caption = Text("\n".join(gaps))
        table.caption_justify = "left"
    return table


def _value(row: Mapping[str, Any] | None, *, console: Console) -> str:
    return words.mean_sd(row if row is None or console.width >= _WIDE else {**row, "sd": None})


def plain_lines(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """One line a verdict, for logs."""
    for verdict in verdicts:
        yield f"{verdict.claim} at {verdict.size}: {noted(verdict.outcome, verdict.note)}: {verdict.reason}"
