"""The tables behind the report's figures, computed with Polars from run records and the runs' own metric
files.

The invariant: a value that is not finite is never averaged and never ranked; a diverged run shows in every
count.

Columns that recur: size, variant, then mean, low, high over seeds, and num_seeds, the seeds behind that
row. Losses are in nats per token. Metric files are long: step, tokens, metric, value, time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from knockout.judge.records import RESULTS, RunRecord, final_value, sizes_of, variants_of

METRICS_FILE = "metrics.parquet"
AT_ONCE = 64
"""Metric files that are read at the same time: Polars takes a thread for each, and has 512."""
FINAL_METRICS = ("train_loss", "val_loss", "generation_loss", "bits_per_byte")
ROUTING_METRICS = ("routing_entropy", "expert_load_max")
"""Of models with mixtures of experts."""
COST_METRICS = ("peak_memory_bytes", "tokens_per_second")
AGGREGATES = ("total", "active", "non_embedding")
"""Counts that are sums over parts, and no part themselves."""

_LONG = {
    "size": pl.String,
    "variant": pl.String,
    "seed": pl.Int64,
    "step": pl.Int64,
    "tokens": pl.Int64,
    "metric": pl.String,
    "value": pl.Float64,
}
_TUNING = {
    "size": pl.String,
    "variant": pl.String,
    "trials": pl.Int64,
    "extensions": pl.Int64,
    "pruned": pl.Int64,
    "reused": pl.Int64,
    "seconds": pl.Float64,
    "tokens": pl.Int64,
    "flops": pl.Float64,
    "saved_share": pl.Float64,
}
_COST = {
    "size": pl.String,
    "variant": pl.String,
    "seed": pl.Int64,
    "identity": pl.String,
    "state": pl.String,
    "reason": pl.String,
    "reused": pl.Boolean,
    "step": pl.Int64,
    "planned_steps": pl.Int64,
    "seconds": pl.Float64,
    "tokens": pl.Int64,
    "tokens_per_second": pl.Float64,
    "flops": pl.Float64,
}


def trials(tuned: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Every trial of every search: size, variant, path, log, value, state (done, diverged, pruned), loss, step, chosen.

    The loss of a done trial is its result, of a pruned one its last evaluation, of a diverged one null; the step is that of
    its last evaluation.
    """
    rows = [
        (one["size"], one["variant"], path, one["log"][path], value, *_ending(trial), _is_chosen(trial, one))
        for one in tuned
        for trial in one["trials"]
        for path, value in trial["values"].items()
    ]
    schema = {"size": pl.String, "variant": pl.String, "path": pl.String, "log": pl.Boolean}
    values = {"value": pl.Float64, "state": pl.String, "loss": pl.Float64, "step": pl.Int64, "chosen": pl.Boolean}
    return pl.DataFrame(rows, schema={**schema, **values}, orient="row")


def _ending(trial: Mapping[str, Any]) -> tuple[str, float | None, int | None]:
    """State, loss and step."""
    step, loss = trial["last"] or (None, None)
    return trial["state"], loss if trial["state"] == "pruned" else trial["loss"], step


def _is_chosen(trial: Mapping[str, Any], search: Mapping[str, Any]) -> bool:
    return trial["state"] == "done" and trial["values"] == search["chosen"]


def tuning_costs(tuned: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """What each cell's search cost: size, variant, trials, extensions, pruned, seconds, tokens, flops, saved_share."""
    rows = [
        {
            **{name: one[name] for name in ("size", "variant", "saved_share")},
            "trials": len(one["trials"]),
            "extensions": sum(trial["extends"] is not None for trial in one["trials"]),
            "pruned": sum(trial["state"] == "pruned" for trial in one["trials"]),
            "reused": sum(trial["reused"] for trial in one["trials"]),
            **{name: sum(trial[name] for trial in one["trials"]) for name in ("seconds", "tokens", "flops")},
        }
        for one in tuned
    ]
    return pl.DataFrame(rows, schema=_TUNING)


def curves_missing(records: Iterable[RunRecord]) -> list[str]:
    """The labels of runs that have a result but no metric file."""
    return [run.label for run in records if run.state in RESULTS and not (run.folder / METRICS_FILE).is_file()]


def loss_curve(records: Sequence[RunRecord], *, metric: str, points: int | None = None) -> pl.DataFrame:
    """A metric over training: size, variant, step, tokens, mean, low, high, num_seeds.

    With `points`, longer curves are first averaged, run by run, over that many equal stretches of steps.
    """
    rows = _values(records, pl.col("metric") == metric)
    thinned = rows if points is None else _stretches(rows, points=points)
    return _over_seeds(thinned, records=records, by=["step", "tokens"])


def gradient_by_layer(records: Sequence[RunRecord], *, metric: str = "gradient_norm") -> pl.DataFrame:
    """A per-block metric at each run's first and last evaluation: size, variant, at, layer, mean, low,
    high, num_seeds.

    `metric` is gradient_norm, activation_rms, update_ratio, routing_entropy or expert_load_max; `at` is first or last;
    layers count from 0, input first.
    """
    rows = _values(records, pl.col("metric").str.starts_with(f"{metric}/block."))
    rows = rows.with_columns(layer=pl.col("metric").str.extract(r"block\.(\d+)$").cast(pl.Int64))
    run = ["size", "variant", "seed"]
    first = rows.filter(pl.col("step") == pl.col("step").min().over(run)).with_columns(at=pl.lit("first"))
    last = rows.filter(pl.col("step") == pl.col("step").max().over(run)).with_columns(at=pl.lit("last"))
    return _over_seeds(pl.concat([first, last]), records=records, by=["at", "layer"])


def final_metrics(records: Sequence[RunRecord]) -> pl.DataFrame:
    """Final values of finished runs: size, variant, metric, mean, sd (null for one seed), num_seeds."""
    rows = [
        (run.size, run.variant, metric, value)
        for run in records
        for metric in (*FINAL_METRICS, *ROUTING_METRICS, *COST_METRICS)
        if (value := final_value(run, metric=metric)) is not None and math.isfinite(value)
    ]
    schema = {"size": pl.String, "variant": pl.String, "metric": pl.String, "value": pl.Float64}
    return (
        pl.DataFrame(rows, schema=schema, orient="row")
        .group_by("size", "variant", "metric", maintain_order=True)
        .agg(mean=pl.col("value").mean(), sd=pl.col("value").std(ddof=1), num_seeds=pl.len())
    )


def parameter_split(records: Sequence[RunRecord]) -> pl.DataFrame:
    """Parameters by part: size, variant, part, parameters; a cell's seeds have the same split."""
    cells = {(run.size, run.variant): run for run in reversed(records)}
    rows = [
        (size, variant, part, amount)
        for (size, variant), run in reversed(cells.items())
        for part, amount in run.parameters.items()
        if part not in AGGREGATES
    ]
    schema = {"size": pl.String, "variant": pl.String, "part": pl.String, "parameters": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def costs(records: Sequence[RunRecord]) -> pl.DataFrame:
    """What each run cost, one row a run: seconds, tokens, tokens_per_second, flops, and how it ended."""
    rows = [
        {
            **{name: getattr(run, name) for name in _COST if name != "tokens_per_second"},
            "tokens_per_second": run.tokens / run.seconds if run.seconds > 0 else None,
        }
        for run in records
    ]
    return pl.DataFrame(rows, schema=_COST)


def divergences(records: Sequence[RunRecord]) -> pl.DataFrame:
    """Where runs diverged: size, variant, seed, step, tokens."""
    rows = [(r.size, r.variant, r.seed, r.step, r.tokens) for r in records if r.state == "diverged"]
    schema = {"size": pl.String, "variant": pl.String, "seed": pl.Int64, "step": pl.Int64, "tokens": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _values(records: Iterable[RunRecord], wanted: pl.Expr) -> pl.DataFrame:
    """The finite values of the wanted metrics from every run that has a metric file."""
    frames = [
        pl.scan_parquet(run.folder / METRICS_FILE, glob=False)
        .filter(wanted & pl.col("value").is_finite())
        .select(
            pl.lit(run.size).alias("size"),
            pl.lit(run.variant).alias("variant"),
            pl.lit(run.seed, dtype=pl.Int64).alias("seed"),
            *("step", "tokens", "metric", "value"),
        )
        for run in records
        if (run.folder / METRICS_FILE).is_file()
    ]
    batches = [frames[begin : begin + AT_ONCE] for begin in range(0, len(frames), AT_ONCE)]
    read = [pl.concat(pl.collect_all(batch)) for batch in batches]
    return pl.concat(read) if read else pl.DataFrame(schema=_LONG)


def _stretches(rows: pl.DataFrame, *, points: int) -> pl.DataFrame:
    """Each run's values averaged over equal stretches of steps, where it has more than `points`."""
    width = pl.max_horizontal(1, (pl.col("step").max() / points).ceil()).over("size").cast(pl.Int64)
    stretch = pl.when(pl.col("step").n_unique().over("size") > points).then((pl.col("step") - 1) // width + 1)
    ends = pl.col("step").max().over("size", "stretch"), pl.col("tokens").max().over("size", "stretch")
    return (
        rows.with_columns(stretch=stretch.otherwise(pl.col("step")))
        .with_columns(*ends)
        .group_by("size", "variant", "seed", "step", "tokens", maintain_order=True)
        .agg(pl.col("value").mean())
    )


def _over_seeds(rows: pl.DataFrame, *, records: Sequence[RunRecord], by: list[str]) -> pl.DataFrame:
    """Mean and range over seeds; sizes and variants in the study's order, then by the other columns."""
    value = pl.col("value")
    order = [
        pl.col("size").cast(pl.Enum(sizes_of(records))),
        pl.col("variant").cast(pl.Enum(variants_of(records))),
    ]
    return (
        rows.group_by("size", "variant", *by)
        .agg(mean=value.mean(), low=value.min(), high=value.max(), num_seeds=pl.col("seed").n_unique())
        .sort(*order, *by, nulls_last=True)
    )
