"""`knockout bench`: what a run costs beside its training, and whether that stays so as they grow many."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from knockout.cli.options import AsJson

if TYPE_CHECKING:
    from knockout.cli.pool_costing import PoolCost
    from knockout.submission.simulating import Cost

CHILD = "import sys; from knockout.cli.costing import measure; measure(*sys.argv[1:])"
"""Each submission in a process of its own, so that its memory is its own."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Measure what a run costs beside its training.")(bench)


def bench(
    runs: Annotated[list[int] | None, typer.Option("--runs", min=2, help="Runs of a submission; repeatable.")] = None,
    pool: Annotated[bool, typer.Option("--pool/--local", help="On a work pool, with a server and a worker.")] = False,
    mlflow: Annotated[bool, typer.Option("--mlflow/--no-mlflow", help="Mirror the runs to MLflow.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure what the orchestrator does for each run: real submissions whose runs rest 0.1 s instead of training.

    The submissions, by default of 10, 100, 500 and 2,000 runs, go one after the other into one new workspace, so that each
    meets the history of those before it. Each takes at least 0.1 s / 16 a run on the clock. On a pool, with a worker of two
    slots, they are of 10, 50 and 200 runs, and the parts of the road are told apart.
    """
    if pool:
        _bench_pool(runs or [10, 50, 200], as_json=as_json)
        return
    found: list[Cost] = []
    with tempfile.TemporaryDirectory(prefix="knockout-bench-") as folder:
        first = 0
        for count in runs or (10, 100, 500, 2000):
            found.append(_measure(count, first_seed=first, folder=Path(folder), mlflow=mlflow))
            first += count
            if not as_json:
                print(_line(found[-1]), flush=True)
    if as_json:
        print(json.dumps([asdict(cost) for cost in found], indent=1))


def _bench_pool(counts: list[int], *, as_json: bool) -> None:
    from knockout.cli.pool_costing import opened

    found: list[PoolCost] = []
    with tempfile.TemporaryDirectory(prefix="knockout-bench-") as folder, opened(Path(folder)) as bench:
        for count in counts:
            found.append(bench.measure(count, first_seed=sum(cost.runs for cost in found)))
            if not as_json:
                print(_pool_line(found[-1]), flush=True)
    if as_json:
        print(json.dumps([{**asdict(cost), "cpu_seconds": cost.cpu_seconds} for cost in found], indent=1))


def measure(count: str, first_seed: str, folder: str, mlflow: str) -> None:
    """The child's side: one submission; what it cost, as JSON."""
    from knockout import services
    from knockout.ledger.workspace import open_workspace
    from knockout.submission.simulating import simulate

    place = open_workspace(Path(folder))
    services.apply_quiet_environment(place.folder)
    cost = simulate(int(count), first_seed=int(first_seed), workspace=place, mlflow=mlflow == "True")
    print(json.dumps(asdict(cost)))


def _measure(count: int, *, first_seed: int, folder: Path, mlflow: bool) -> Cost:
    from knockout.errors import RunError
    from knockout.submission.simulating import Cost

    words = [sys.executable, "-c", CHILD, str(count), str(first_seed), str(folder), str(mlflow)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise RunError(f"a submission of {count} resting runs ended with exit code {done.returncode}, as said above")
    return Cost(**json.loads(done.stdout.splitlines()[-1]))


def _line(cost: Cost) -> str:
    each = f"{1000 * cost.cpu_seconds:7.1f} ms of CPU a run"
    return f"{cost.runs:6,} runs {each}, {cost.peak_bytes / 1e6:6.0f} MB at most, {cost.seconds:6.1f} s in all"


def _pool_line(cost: PoolCost) -> str:
    parts = {
        "worker": cost.worker_cpu_seconds,
        "its runs": cost.runs_cpu_seconds,
        "study": cost.study_cpu_seconds,
        "server": cost.server_cpu_seconds,
    }
    times = ", ".join(f"{name} {1000 * seconds:.0f}" for name, seconds in parts.items())
    memory = f"worker {cost.worker_bytes / 1e6:.0f}, parent {cost.warm_bytes / 1e6:.0f}, study {cost.study_bytes / 1e6:.0f}"
    return (
        f"{cost.runs:6,} runs, ms of CPU a run: {times}; requests a run: {cost.requests:.1f}; "
        f"MB at most: {memory}; {cost.seconds:.1f} s in all"
    )
