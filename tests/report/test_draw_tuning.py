"""The picture of a search: what stands at a loss, what does not, and what every study's search can be drawn from."""

from __future__ import annotations

import copy
import re
from typing import Any

import polars as pl
import pytest
from matplotlib.axes import Axes

from knockout.report import draw_tuning as drawn
from knockout.report import figures
from knockout.report.charts import legend
from knockout.report.palette import variant_styles

STYLES = variant_styles(["baseline", "no-mask"])


def chart_of(tuned: list[dict[str, Any]]) -> dict[str, Any]:
    table = figures.trials(tuned).to_dict(as_series=False)
    return {"kind": "tuning", "title": "A search", "unit": "nats per token", "table": table}


def draw(chart: dict[str, Any]) -> str:
    return drawn.draw_tuning(chart, key="c0", styles=STYLES)


@pytest.fixture
def tuned(report_facts: dict[str, Any]) -> list[dict[str, Any]]:
    """Two variants, with three finished trials each (3.5, 3.25, 3.3), one that diverged and one pruned at step 20."""
    return copy.deepcopy(report_facts["study"]["tuned"])


@pytest.fixture
def axes(monkeypatch: pytest.MonkeyPatch) -> list[Axes]:
    """The panels of what is drawn."""
    made: list[Axes] = []

    def panels(*arguments: Any, **named: Any) -> tuple[Any, list[Axes]]:
        figure, found = real(*arguments, **named)
        made.extend(found)
        return figure, found

    real = drawn.panels
    monkeypatch.setattr(drawn, "panels", panels)
    return made


def test_each_variant_has_its_panel_and_all_share_their_axes(tuned: list[dict[str, Any]], axes: list[Axes]) -> None:
    text = draw(chart_of(tuned))
    assert [panel.get_title(loc="left") for panel in axes] == ["baseline", "no-mask"]
    assert len({(panel.get_xlim(), panel.get_ylim()) for panel in axes}) == 1
    assert text.count(">best 3.250 at 0.01<") == 2


def test_only_a_trial_that_ran_to_its_end_stands_at_a_loss(tuned: list[dict[str, Any]], axes: list[Axes]) -> None:
    text = draw(chart_of(tuned))
    for panel in axes:
        at_losses = {y for line in panel.lines if line.get_transform() == panel.transData for y in line.get_ydata()}  # type: ignore[union-attr]
        assert at_losses == {3.5, 3.25, 3.3}
        above = [line for line in panel.lines if line.get_transform() == panel.get_xaxis_transform()]
        assert sorted((x, line.get_marker()) for line in above for x in line.get_xdata()) == [(1e-4, "o"), (1e-1, "x")]  # type: ignore[union-attr]
        share = (3.5 - panel.get_ylim()[0]) / (panel.get_ylim()[1] - panel.get_ylim()[0])
        assert all(share < y for line in above for y in line.get_ydata()), "the highest loss is under the band"  # type: ignore[union-attr]
        (pruned,) = (line for line in above if line.get_marker() == "o")
        assert pruned.get_fillstyle() == "none"
        assert [note.get_text() for note in panel.texts if note.get_text().isdigit()] == ["20"]
    assert "5.75" not in text


def test_variants_with_the_same_losses_are_told_apart(tuned: list[dict[str, Any]], axes: list[Axes]) -> None:
    many = [{**tuned[0], "variant": f"v{number}"} for number in range(10)]
    text = draw(chart_of(many))
    assert [panel.get_title(loc="left") for panel in axes] == [f"v{number}" for number in range(10)]
    assert all(re.search(rf">v{number}<", text) for number in range(10))


@pytest.mark.parametrize("log", [True, False])
def test_a_search_that_tried_one_value_alone_is_drawn(tuned: list[dict[str, Any]], log: bool, axes: list[Axes]) -> None:
    done = [{**trial, "values": {"depth": 4}} for trial in tuned[0]["trials"] if trial["state"] == "done"]
    draw(chart_of([{**tuned[0], "trials": done, "chosen": {"depth": 4}, "log": {"depth": log}}]))
    (panel,) = axes
    low, high = panel.get_xlim()
    assert low < 4 < high


def test_the_table_of_a_report_that_has_no_steps_is_drawn_without_them(
    tuned: list[dict[str, Any]], axes: list[Axes]
) -> None:
    chart = chart_of(tuned)
    del chart["table"]["step"]
    assert "step" not in pl.DataFrame(chart["table"]).columns
    draw(chart)
    assert [note.get_text() for panel in axes for note in panel.texts if note.get_text().isdigit()] == []


def test_the_key_explains_the_marks(tuned: list[dict[str, Any]]) -> None:
    names = [entry["name"] for entry in legend(chart_of(tuned), styles=STYLES)]
    assert names == ["ran to its end", "chosen", "pruned at that step, no final loss", "diverged", "the baseline's best"]
