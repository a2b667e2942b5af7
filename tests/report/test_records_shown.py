"""What a report shows of routing and of memory."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from knockout.judge import RunRecord
from knockout.report import figures
from knockout.report.html import render_html

LOADS = {0: 1.25, 1: 3.5}
CHART = "Load of the busiest expert per block"


@pytest.fixture
def mixed(tmp_path: Path, make: Callable[..., RunRecord]) -> list[RunRecord]:
    """A dense baseline, and a mixture whose second block sends nearly all to one of four experts."""
    runs = [make(tmp_path, variant, seed) for variant in ("baseline", "no-mask") for seed in range(2)]
    return [with_routing(run) if run.variant == "no-mask" else run for run in runs]


def with_routing(run: RunRecord) -> RunRecord:
    path = run.folder / "metrics.parquet"
    frame = pl.read_parquet(path)
    at = frame.filter(pl.col("metric") == "val_loss")
    rows = [
        at.with_columns(metric=pl.lit(f"expert_load_max/block.{block:02d}"), value=pl.lit(load + 0.1 * run.seed))
        for block, load in LOADS.items()
    ]
    pl.concat([frame, *rows]).write_parquet(path)
    return replace(
        run, metrics={**run.metrics, "expert_load_max": 3.5, "routing_entropy": 0.9, "peak_memory_bytes": 12_345_678}
    )


def test_the_load_of_each_block_is_charted_for_mixtures_and_for_no_other(mixed: list[RunRecord], make_report: Any) -> None:
    table = figures.gradient_by_layer(mixed, metric="expert_load_max")
    assert table["variant"].unique().to_list() == ["no-mask"]
    last = table.filter(pl.col("at") == "last")
    assert last["mean"].to_list() == pytest.approx([load + 0.05 for load in LOADS.values()])
    facts = make_report(mixed)
    (chart,) = [chart for chart in facts["charts"] if chart["title"] == CHART]
    assert chart["unit"] == "largest load / mean load"
    assert CHART in render_html(facts)
    dense = make_report([run for run in mixed if run.variant == "baseline"])
    assert CHART not in [chart["title"] for chart in dense["charts"]]


def test_memory_and_routing_stand_among_the_final_metrics(mixed: list[RunRecord], make_report: Any) -> None:
    page = render_html(make_report(mixed))
    table = page[page.index("Final metrics") :]
    headings = re.findall(r'<th class="n">(.*?)</th>', table[: table.index("</thead>")])
    assert headings[-3:] == ["routing_entropy", "expert_load_max", "peak memory"]
    rows = re.findall(r"<tr>(.*?)</tr>", table[table.index("<tbody>") : table.index("</tbody>")], re.S)
    assert [re.findall(r">([^<>]*)</td>", row)[-1] for row in rows] == ["–", "12.3 MB"]
    dense = render_html(make_report([run for run in mixed if run.variant == "baseline"]))
    assert "peak memory" not in dense
    assert "expert_load_max" not in dense
