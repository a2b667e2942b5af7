"""Verdicts of calculation for a terminal.

The invariant: nothing is cut off; a terminal that is too narrow for the table gets the same facts as lines.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from knockout.judge.calculation.calculated import CalculatedVerdict
from knockout.report.outcomes import STYLES

WIDE = 140
"""Columns from which on the table is easier to read than lines."""


def calculated_verdicts(verdicts: Sequence[CalculatedVerdict], *, console: Console) -> RenderableType:
    """Every verdict: claim, statement, the document's value beside the computed one, and why."""
    wide = console.is_terminal and console.width >= WIDE
    return _table(verdicts) if wide else Group(*(_lines(verdict) for verdict in verdicts))


def summary(verdicts: Sequence[CalculatedVerdict]) -> str:
    """`155 claims: 110 supported, 45 refuted`."""
    refuted = sum(verdict.verdict == "refuted" for verdict in verdicts)
    noun = "claim" if len(verdicts) == 1 else "claims"
    return f"{len(verdicts)} {noun}: {len(verdicts) - refuted} supported, {refuted} refuted"


def _table(verdicts: Sequence[CalculatedVerdict]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for heading in ("claim", "verdict"):
        table.add_column(heading, no_wrap=True)
    for heading in ("document", "computed"):
        table.add_column(heading, justify="right", max_width=30, overflow="fold")
    table.add_column("statement, and why", overflow="fold", ratio=1)
    for verdict in verdicts:
        table.add_row(
            Text(verdict.id),
            Text(verdict.verdict, style=STYLES[verdict.verdict]),
            Text(verdict.stated_text),
            Text(verdict.computed_text),
            Text.assemble(f"{verdict.says} ({_source(verdict)})\n", (verdict.detail, "dim")),
        )
    return table


def _lines(verdict: CalculatedVerdict) -> Text:
    return Text.assemble(
        (verdict.id, "bold"),
        " ",
        (verdict.verdict, STYLES[verdict.verdict]),
        f" ({_source(verdict)}): {verdict.says}\n",
        f"  document: {verdict.stated_text}; computed: {verdict.computed_text}\n",
        f"  {verdict.detail}",
    )


def _source(verdict: CalculatedVerdict) -> str:
    return f"{verdict.document} {verdict.section}"
