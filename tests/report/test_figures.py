"""Figures against the runs' files, recomputed without the code under test."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from knockout.judge import RunRecord
from knockout.report import figures, tables

MakeRun = Callable[..., RunRecord]


def read(run: RunRecord, metric: str) -> dict[int, float]:
    rows = pq.read_table(run.folder / "metrics.parquet").to_pylist()
    return {row["step"]: row["value"] for row in rows if row["metric"] == metric}


def of(records: list[RunRecord], variant: str) -> list[RunRecord]:
    return [run for run in records if run.variant == variant]


def test_a_loss_curve_is_the_mean_and_range_of_its_seeds(records: list[RunRecord]) -> None:
    curve = figures.loss_curve(records, metric="val_loss").filter(pl.col("variant") == "baseline")
    files = [read(run, "val_loss") for run in of(records, "baseline")]
    assert curve["step"].to_list() == sorted(files[0])
    for step, mean, low, high in curve.select("step", "mean", "low", "high").iter_rows():
        values = [file[step] for file in files]
        assert (mean, low, high) == pytest.approx((np.mean(values), min(values), max(values)))
    assert curve["num_seeds"].to_list() == [3] * len(curve)


def test_a_thinned_curve_averages_every_step_of_a_run_once(records: list[RunRecord]) -> None:
    curve = figures.loss_curve(of(records, "baseline"), metric="train_loss", points=6)
    file_means = [list(read(run, "train_loss").values()) for run in of(records, "baseline")]
    stretches = np.asarray(file_means).reshape(3, 6, 10).mean(axis=2)
    assert curve["step"].to_list() == [10, 20, 30, 40, 50, 60]
    assert curve["mean"].to_list() == pytest.approx(list(stretches.mean(axis=0)))
    assert curve["high"].to_list() == pytest.approx(list(stretches.max(axis=0)))


def test_each_curve_is_the_mean_of_what_the_runs_recorded(records: list[RunRecord]) -> None:
    curve = figures.loss_curve(records, metric="generation_loss")
    last = {row["variant"]: row["mean"] for row in curve.filter(pl.col("step") == 60).to_dicts()}
    for variant in ("baseline", "no-mask"):
        recorded = [read(run, "generation_loss")[60] for run in of(records, variant)]
        assert last[variant] == pytest.approx(np.mean(recorded))


def test_every_trial_of_a_search_is_in_its_table_and_the_chosen_one_marked(report_facts: dict[str, Any]) -> None:
    table = figures.trials(report_facts["study"]["tuned"])
    mine = table.filter(variant="no-mask")
    assert mine["state"].to_list() == ["done", "done", "diverged", "pruned", "done"]
    assert mine["loss"].to_list() == [3.5, 3.25, None, 5.75, 3.3]
    assert mine["step"].to_list() == [60, 60, None, 20, 60]
    assert mine["chosen"].to_list() == [False, True, False, False, False]


def test_what_tuning_cost_stands_beside_what_judging_cost(report_facts: dict[str, Any]) -> None:
    (table,) = figures.tuning_costs(report_facts["study"]["tuned"]).filter(variant="no-mask").to_dicts()
    assert (table["trials"], table["extensions"], table["pruned"], table["reused"]) == (5, 1, 1, 2)
    assert (table["seconds"], table["tokens"], table["flops"]) == (112.0, 5_000, 5e9)
    rows = {(row["variant"], row["role"]): row for row in report_facts["cost"]}
    assert rows["no-mask", "trial"]["num_runs"] == 5
    assert rows["no-mask", "trial"]["seconds"] == 112.0
    assert rows["no-mask", "judged"]["num_runs"] == 3
    assert ("no-residual", "trial") not in rows


def test_values_that_are_not_finite_stay_out_of_every_mean(records: list[RunRecord]) -> None:
    assert any(math.isinf(value) for value in read(of(records, "no-norm")[0], "train_loss").values())
    curve = figures.loss_curve(records, metric="train_loss")
    assert curve.select(pl.col("mean", "low", "high").is_finite().all()).row(0) == (True, True, True)


def test_gradients_are_those_of_the_first_and_last_evaluation(records: list[RunRecord]) -> None:
    table = figures.gradient_by_layer(records)
    runs = of(records, "no-residual")
    for at, step in (("first", 1), ("last", 60)):
        rows = table.filter((pl.col("variant") == "no-residual") & (pl.col("at") == at))
        assert rows["layer"].to_list() == [0, 1, 2, 3]
        for layer, mean in rows.select("layer", "mean").iter_rows():
            expected = np.mean([read(run, f"gradient_norm/block.{layer:02d}")[step] for run in runs])
            assert mean == pytest.approx(expected)


def test_final_metrics_are_over_finished_seeds_only(records: list[RunRecord]) -> None:
    table = figures.final_metrics(records)
    rows = {(row["variant"], row["metric"]): row for row in table.to_dicts()}
    values = [run.metrics["val_loss"] for run in of(records, "no-residual") if run.state == "done"]
    found = rows["no-residual", "val_loss"]
    assert found["num_seeds"] == len(values) == 2
    assert (found["mean"], found["sd"]) == pytest.approx((np.mean(values), np.std(values, ddof=1)))
    assert not any(variant == "no-norm" for variant, _ in rows)


def test_every_cell_has_a_row_and_says_what_has_no_number(records: list[RunRecord]) -> None:
    rows = {row["variant"]: row for row in tables.finals(records)}
    assert rows["no-norm"]["diverged"] == ["s0, s1, s2 diverged at step 30"]
    assert rows["no-residual"]["unfinished"] == ["s2 failed at step 12: out of <memory>"]
    assert (rows["no-norm"]["num_done"], rows["no-norm"]["num_runs"]) == (0, 3)


def test_a_model_that_sees_the_future_gets_a_sentence_with_both_sides(records: list[RunRecord]) -> None:
    (sentence,) = tables.sightings(records)
    assert "no-mask sees the future" in sentence
    assert "nats under the baseline's" in sentence
    assert "nats over it" in sentence


def test_costs_count_tokens_a_second_and_reuse(records: list[RunRecord]) -> None:
    table = figures.costs(records)
    assert table["tokens_per_second"].to_list() == pytest.approx([run.tokens / run.seconds for run in records])
    assert table.filter(pl.col("reused"))["variant"].unique().to_list() == ["baseline"]


def test_parameters_are_compared_with_the_baselines(records: list[RunRecord]) -> None:
    rows = {row["variant"]: row for row in tables.parameters(records)}
    assert rows["baseline"]["ratio"] == 1.0
    assert rows["no-norm"]["total"] == rows["baseline"]["total"] - 2048
    split = figures.parameter_split(records).filter(pl.col("variant") == "no-norm")
    assert split["parameters"].sum() == rows["no-norm"]["total"]
    assert "total" not in split["part"].to_list()


def test_a_patch_reads_as_paths() -> None:
    patch = {"attention": {"mask": {"kind": "none"}}, "depth": 16, "ffn": {}}
    assert tables.flat(patch) == ["attention.mask.kind: none", "depth: 16", "ffn: {}"]


def test_sizes_keep_the_studys_order(records: list[RunRecord], tmp_path: Path, make: MakeRun) -> None:
    runs = [make(tmp_path, "baseline", 0, size="pico"), *records]
    assert figures.loss_curve(runs, metric="val_loss")["size"].unique(maintain_order=True).to_list() == [
        "pico",
        "nano",
    ]


def test_runs_without_files_are_named_and_leave_empty_tables(records: list[RunRecord], tmp_path: Path) -> None:
    lost = [replace(run, folder=tmp_path / "lost") for run in records[:1]]
    assert figures.curves_missing(lost) == ["baseline · nano · s0"]
    assert figures.loss_curve(lost, metric="val_loss", points=5).is_empty()
    assert figures.gradient_by_layer(lost).is_empty()
    assert figures.costs([]).is_empty()
