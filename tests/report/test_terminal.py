"""Tables for a terminal: nothing cut off, plain where there is no terminal."""

from __future__ import annotations

import copy
import io
import subprocess
import sys
from typing import Any

import pytest
from rich.console import Console

from knockout.judge import Judgement, RunRecord
from knockout.report.searches import pruning_check
from knockout.report.terminal import fairness_lines, metric_table, plain_lines, tuning_lines, verdict_table


def printed(console: Console, table: object) -> str:
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [70, 160])
def test_a_verdict_table_fits_its_width_and_says_everything(judgement: Judgement, width: int) -> None:
    console = Console(file=io.StringIO(), width=width)
    text = printed(console, verdict_table(judgement.verdicts, console=console))
    assert max(len(line) for line in text.splitlines()) <= width
    assert "…" not in text
    for verdict in judgement.verdicts:
        assert verdict.claim in text
        assert verdict.outcome in text
    assert ("effect" in text) == (width == 160)


def test_output_that_is_no_terminal_has_no_boxes_and_no_colour(judgement: Judgement) -> None:
    console = Console(file=io.StringIO(), width=120)
    text = printed(console, verdict_table(judgement.verdicts, console=console))
    assert "\x1b" not in text
    assert "─" not in text


def test_markup_in_a_reason_is_text(judgement: Judgement) -> None:
    console = Console(file=io.StringIO(), width=160)
    assert "<memory>" in printed(console, verdict_table(judgement.verdicts, console=console))


@pytest.mark.parametrize("width", [80, 140])
def test_a_metric_table_names_what_has_no_number(records: list[RunRecord], width: int) -> None:
    console = Console(file=io.StringIO(), width=width)
    text = printed(console, metric_table(records, console=console))
    assert "no-norm · nano · s0, s1, s2 diverged at step 30" in text
    assert "no-residual · nano · s2 failed at step 12: out of <memory>" in text
    assert ("±" in text) == (width == 140)


def test_what_pruning_saved_is_told_for_the_whole_study(report_facts: dict[str, Any]) -> None:
    (line,) = tuning_lines(report_facts["study"]["tuned"])
    assert line.plain == "tuning: 10 trials, 2 pruned: 13% of the tuning tokens saved"
    done = [trial for trial in report_facts["study"]["tuned"][0]["trials"] if trial["state"] == "done"]
    (whole,) = tuning_lines([{"trials": done}])
    assert whole.plain == "tuning: 3 trials, none pruned"
    assert list(tuning_lines([])) == []


def test_what_pruned_trials_came_to_that_were_trained_to_their_ends_is_told(report_facts: dict[str, Any]) -> None:
    searches = copy.deepcopy(report_facts["study"]["tuned"])
    first, second = (next(trial for trial in one["trials"] if trial["state"] == "pruned") for one in searches)
    first["in_full"] = {"loss": 3.5}
    ended = "pruned trials were trained to their ends as well"
    assert pruning_check(searches) == f"1 of 2 {ended}: no search would have chosen otherwise"
    second["in_full"] = {"loss": None}
    assert pruning_check(searches) == f"all 2 {ended}: no search would have chosen otherwise"
    second["in_full"] = {"loss": 3.2}
    assert pruning_check(searches) == f"all 2 {ended}: the search of no-mask would have chosen otherwise"
    *_, line = tuning_lines(searches)
    assert line.plain == f"pruning: {pruning_check(searches)}"


def test_plain_lines_are_one_a_verdict(judgement: Judgement) -> None:
    lines = list(plain_lines(judgement.verdicts))
    assert len(lines) == len(judgement.verdicts)
    assert lines[0].startswith("T6.4-peek at nano: supported (shown at nano only): no-mask sees the future")


def test_a_terminal_table_does_not_wait_for_matplotlib_or_polars() -> None:
    check = "import sys, knockout.report.terminal; print({'matplotlib', 'polars', 'torch', 'mlflow'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"


def test_what_results_give_reason_to_doubt_is_told_and_notes_on_the_plan_are_not_told_again() -> None:
    said = [("unequal", "note"), ("outlier", "note"), ("looks", "serious"), ("edge", "serious")]
    flags = [{"kind": kind, "level": level, "sentence": f"of {kind}"} for kind, level in said]
    assert [line.plain for line in fairness_lines(flags)] == [
        "Note: of outlier.",
        "Fairness: of looks.",
        "Fairness: of edge.",
    ]
