"""A disk that loses what a run has measured while it is trained, with MLflow looking on."""

from __future__ import annotations

from agreeing import invariants
from commands import Home, until


def test_metrics_that_cannot_be_read_any_more_fail_their_run_alone_and_are_set_right(home: Home):
    """The other run is done, MLflow hears of both, doctor sets right what lies there, and the same command finishes."""
    process = home.start("run", "resumed", "--no-prefect", "--set", "tokens=38400")
    until(lambda: process.poll() is not None or list(home.folder.glob("runs/*/metrics/0*.parquet")))
    damaged = next(home.folder.glob("runs/*/metrics/0*.parquet"))
    damaged.unlink()
    damaged.mkdir()
    code, said = home.finish(process)
    assert code == 1, said
    assert "Traceback" not in said
    failed = [run for run in home.runs() if run.state != "done"]
    assert [(run.identity, run.state, run.owner) for run in failed] == [(damaged.parent.parent.name, "failed", None)]
    assert "has lost the metrics of the steps" in (failed[0].reason or "")
    code, told = home.here("doctor")
    assert code == 1
    assert f"{damaged.relative_to(home.folder)}: a folder stands where a file belongs" in told
    code, told = home.here("doctor", "--repair")
    assert code == 0, told
    code, said = home.knockout("run", "resumed", "--no-prefect", "--set", "tokens=38400")
    assert code == 0, said
    invariants(home)
