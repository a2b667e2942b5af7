"""Verdicts of several studies in one table: whatever the names, the reason has room, and nothing is cut off."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from knockout.report.outcomes import ROOM, OutcomeRow, outcome_table

HEADINGS = ("claim", "study", "size")
WHY = "no-residual is 1.08 nats worse than baseline on val_loss, 95 % interval 1.05 to 1.11, 3 paired seeds"
NAMES, NUMBERS = ("T7.1-residual-threshold", "depth-width-composition", "pico"), ("+1.08 [1.05, 1.11]", "3", "3 min 02 s")
ROWS = [OutcomeRow(NAMES, outcome, NUMBERS, WHY) for outcome in ("supported", "not run")]


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize(("width", "shown"), [(160, "numbers"), (115, "columns"), (80, "lines"), (40, "lines")])
def test_a_reason_has_room_before_numbers_and_columns_have(width: int, shown: str, terminal: bool):
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None)
    console.print(outcome_table(ROWS, headings=HEADINGS, console=console))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    assert all(name in text for name in (*NAMES, "supported", "not run"))
    assert (NUMBERS[0] in text) == (shown == "numbers")
    assert (f"  study    {NAMES[1]}" in lines) == (shown == "lines")
    assert text.count(WHY) == len(ROWS)
    heads = [line for line in lines if line.lstrip().startswith("claim")]
    assert [width - head.index("why") >= ROOM[shown == "numbers"] for head in heads] == [True] * (shown != "lines")
