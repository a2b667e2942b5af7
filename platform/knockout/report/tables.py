"""The report's tables for reading: rows of plain values, one row a cell of the study.

The invariant: every cell of the study has its row, with what diverged or failed spelled out in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from knockout.judge.records import BASELINE, RESULTS, RunRecord, sizes_of, variants_of
from knockout.report import figures, words


def cells(records: Sequence[RunRecord]) -> list[tuple[str, str, list[RunRecord]]]:
    """Size, variant and runs of every cell; sizes and variants in the study's order, the baseline first."""
    variants = variants_of(records)
    named = [
        (size, variant, [run for run in records if (run.size, run.variant) == (size, variant)])
        for size in sizes_of(records)
        for variant in variants
    ]
    return [(size, variant, runs) for size, variant, runs in named if runs]


def finals(records: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """Final metrics by cell: mean, sd and num_seeds of each, and what has no number, in words."""
    table = figures.final_metrics(records)
    rows = []
    for size, variant, runs in cells(records):
        values = table.filter((pl.col("size") == size) & (pl.col("variant") == variant))
        metrics = {row["metric"]: row for row in values.select("metric", "mean", "sd", "num_seeds").to_dicts()}
        rows.append(
            {
                "size": size,
                "variant": variant,
                "causal": all(run.causal for run in runs),
                "num_done": sum(run.state == "done" for run in runs),
                "num_runs": len(runs),
                "metrics": metrics,
                "diverged": _endings([run for run in runs if run.state == "diverged"]),
                "unfinished": _endings([run for run in runs if run.state not in RESULTS]),
            }
        )
    return rows


def sightings(records: Sequence[RunRecord]) -> list[str]:
    """One sentence for each model that sees the future: how low it trains, and how badly it then predicts."""
    means = {(row["size"], row["variant"], row["metric"]): row["mean"] for row in figures.final_metrics(records).to_dicts()}
    sentences = []
    for size, variant, runs in cells(records):
        keys = [(size, name, m) for m in ("train_loss", "generation_loss") for name in (variant, BASELINE)]
        if all(run.causal for run in runs) or any(key not in means for key in keys):
            continue
        trained, base_trained, generated, base_generated = (means[key] for key in keys)
        sentences.append(
            f"At {size}, {variant} sees the future: its training loss of {trained:.3g} is "
            f"{_apart(trained, base_trained)} the baseline's, and its generation loss of {generated:.3g}, "
            f"each token predicted from its prefix alone, is {_apart(generated, base_generated)} it."
        )
    return sentences


def tuning_by_variant(tuned: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What the search of each cell cost, in the columns of `cost_by_variant`; a run is a trial here."""
    return [
        {
            "size": row["size"],
            "variant": row["variant"],
            "role": "trial",
            "num_runs": row["trials"],
            "num_reused": row["reused"],
            "seconds": row["seconds"],
            "tokens_per_second": _ratio(row["tokens"], row["seconds"]),
            "flops": row["flops"],
        }
        for row in figures.tuning_costs(tuned).to_dicts()
    ]


def cost_by_variant(records: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """What each cell cost: runs, how many were reused, seconds in all, median tokens per second, FLOPs in
    all.
    """
    by_cell = figures.costs(records).group_by("size", "variant", maintain_order=True)
    return by_cell.agg(
        role=pl.lit("judged"),
        num_runs=pl.len(),
        num_reused=pl.col("reused").sum(),
        seconds=pl.col("seconds").sum(),
        tokens_per_second=pl.col("tokens_per_second").median(),
        flops=pl.col("flops").sum(),
    ).to_dicts()


def parameters(records: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """Parameters by cell: by part, total, active where it differs, and the total as a ratio to the
    baseline's.
    """
    totals = {(size, variant): total(runs[0]) for size, variant, runs in cells(records)}
    return [
        {
            "size": size,
            "variant": variant,
            "parts": {k: v for k, v in runs[0].parameters.items() if k not in figures.AGGREGATES},
            "total": totals[size, variant],
            "active": runs[0].parameters.get("active", totals[size, variant]),
            "ratio": _ratio(totals[size, variant], totals.get((size, BASELINE))),
        }
        for size, variant, runs in cells(records)
    ]


def differences(records: Sequence[RunRecord], *, patches: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What sets each cell apart from the baseline: its patch, parameters and the FLOPs of a whole run."""
    flops = {(size, variant): max(run.flops for run in runs) for size, variant, runs in cells(records)}
    return [
        {
            "size": row["size"],
            "variant": row["variant"],
            "patch": flat(patches.get(row["variant"], {})),
            "parameters": row["total"],
            "parameters_ratio": row["ratio"],
            "flops": flops[row["size"], row["variant"]],
            "flops_ratio": _ratio(flops[row["size"], row["variant"]], flops.get((row["size"], BASELINE))),
        }
        for row in parameters(records)
    ]


def total(record: RunRecord) -> int:
    """All parameters of a run's model."""
    parts = (value for key, value in record.parameters.items() if key not in figures.AGGREGATES)
    return record.parameters["total"] if "total" in record.parameters else sum(parts)


def flat(patch: Mapping[str, Any], *, prefix: str = "") -> list[str]:
    """A patch as lines `path: value`."""
    lines: list[str] = []
    for key, value in patch.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            lines += flat(value, prefix=f"{path}.")
        else:
            lines.append(f"{path}: {words.as_yaml(value)}")
    return lines


def _endings(runs: Sequence[RunRecord]) -> list[str]:
    """How runs ended without a number, seeds that ended alike together: `s0, s1 diverged at step 976`."""
    seeds: dict[str, list[str]] = {}
    for run in runs:
        reason = f": {run.reason}" if run.reason and run.state != "diverged" else ""
        seeds.setdefault(f"{run.state} at step {run.step}{reason}", []).append(f"s{run.seed}")
    return [f"{', '.join(names)} {ending}" for ending, names in seeds.items()]


def _apart(value: float, base: float) -> str:
    return f"{abs(value - base):.3g} nats {'under' if value < base else 'over'}"


def _ratio(value: float, base: float | None) -> float | None:
    return value / base if base else None
