"""What must hold of a workspace once a study has come to its end, whatever was done to it on the way.

`invariants` looks at the ledger, the run files, MLflow's, Prefect's and Optuna's databases and the process table together.
Each is read by itself, not through the code that wrote it, except the ledger.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from commands import Home

from knockout.ledger.inventory import Ask, Submitted, every_ask, every_submission
from knockout.ledger.store import LedgerRun
from knockout.tracking.removal import Remover
from knockout.upkeep.doctor import Diagnosis, diagnose, repair
from knockout.upkeep.sweeping import Wanted, candidates

CUT_OFF = {"half-written", "orphan", "orphan report", "orphan search"}
"""What the doctor finds of killed processes: files, runs, pages and searches that the ledger was yet to be told."""
COST = ("tokens_per_second", "peak_memory_bytes")
FINISHED = ("done", "diverged")
STATUS = {"done": "FINISHED", "diverged": "FINISHED", "pruned": "KILLED", "failed": "FAILED", "cancelled": "KILLED",
          "timed-out": "KILLED"}  # fmt: skip
PREFECT = {"done": "COMPLETED", "cancelled": "CANCELLED", "timed-out": "FAILED"}
CURVES = "key NOT LIKE 'final/%' AND key NOT LIKE 'parameters/%'"
FLOWS = """SELECT flow_run.name, flow_run.state_type, flow_run_state.message FROM flow_run
    JOIN flow_run_state ON flow_run.state_id = flow_run_state.id JOIN flow ON flow.id = flow_run.flow_id
    WHERE flow.name = 'study'"""
DIED = re.compile(r"process \d+ on \S+ (died|gave no sign of life)")
MINE = {"WAITING": "open", "RUNNING": "open", "COMPLETE": "done", "PRUNED": "pruned", "FAIL": "diverged"}


def invariants(home: Home, *, complete: bool = True) -> None:
    """Assert all that must hold between commands; `complete` says that every run asked for must have its result."""
    home.until_gone()
    records_agree(home, complete=complete)
    in_order(home)


def records_agree(home: Home, *, complete: bool = True) -> None:
    """As `invariants`, where servers of the workspace live on."""
    with home.ledger() as ledger:
        submitted, asked = every_submission(ledger), every_ask(ledger)
        runs = {run.identity: run for run in ledger.runs({ask.identity for ask in asked})}
    assert [one.submission for one in submitted if one.state == "running"] == []
    assert [run.identity for run in runs.values() if run.state in ("leased", "running")] == []
    for run in runs.values():
        _files_agree(home.folder / "runs" / run.identity, run=run)
    if complete:
        assert {run.state for run in runs.values()} <= {"done", "diverged", "pruned"}
    _whole(home.folder)
    if (store := home.folder / "mlflow" / "mlflow.db").exists():
        _mlflow_agrees(store, home=home, submitted=submitted, asked=asked, runs=runs)
    if (store := home.folder / "prefect" / "prefect.db").exists():
        _prefect_agrees(store, submitted=submitted)
    if (store := home.folder / "optuna.db").exists():
        _optuna_agrees(store, asked=asked, runs=runs, complete=complete)


def in_order(home: Home) -> None:
    """The doctor finds nothing but what a killed process had not finished, removes it, and then finds nothing.

    What may go are runs that no report cites, with what only they need: nothing that was cut off is left beside them.
    """
    found = diagnose(home.workspace)
    assert found.settled == ()
    assert {finding.kind for finding in found.findings} <= CUT_OFF, found.findings
    assert {one.problem for one in repair(found, workspace=home.workspace)} <= {None}
    assert diagnose(home.workspace) == Diagnosis((), ())
    with home.ledger() as ledger:
        kinds = {one.kind for one in candidates(ledger, wanted=Wanted(), remover=Remover(home.folder))}
    assert kinds <= {"run", "search", "corpus"}


def came_to(folder: Path) -> dict[str, Any]:
    """Everything that a sealed run says, but for what it cost: weights and metric series bit for bit."""
    result = json.loads((folder / "result.json").read_text())
    weights = torch.load(folder / "weights.pt", weights_only=True)["network"]
    digests = {name: hashlib.sha256(x.numpy().tobytes()).hexdigest() for name, x in weights.items()}
    rows = [(row["metric"], row["step"], row["value"].hex()) for row in _rows(folder) if row["metric"] not in COST]
    kept = {name: result[name] for name in ("outcome", "reason", "step", "planned_steps")}
    final = {name: value.hex() for name, value in result["metrics"].items() if name not in COST}
    return {**kept, "final": final, "weights": digests, "rows": sorted(rows)}


def _rows(folder: Path) -> list[dict[str, Any]]:
    return pq.read_table(folder / "metrics.parquet").to_pylist()


def _files_agree(folder: Path, *, run: LedgerRun) -> None:
    """A run that the ledger calls finished has a sealed result that says the same, and every (metric, step) once."""
    sealed = folder / "result.json"
    assert len(list(folder.glob("checkpoints/[0-9]*.pt"))) <= 2
    if run.state not in FINISHED:
        assert not sealed.exists(), f"{run.identity} is {run.state}, and has a result"
        return
    result = json.loads(sealed.read_text())
    assert (result["outcome"], result["reason"], result["step"]) == (run.state, run.reason, run.step)
    assert result["metrics"] == run.metrics
    for name, digest in result["files"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    rows = _rows(folder)
    assert max(Counter((row["metric"], row["step"]) for row in rows).values()) == 1
    if run.state == "done":
        assert run.step == run.planned_steps
        steps = [row["step"] for row in rows if row["metric"] == "train_loss"]
        assert steps == list(range(1, run.planned_steps + 1))
        assert list(folder.glob("checkpoints/[0-9]*.pt")) == list(folder.glob("metrics/[0-9]*.parquet")) == []


def _whole(folder: Path) -> None:
    """Whatever has a file's final name can be read whole."""
    for path in folder.glob("runs/*/checkpoints/[0-9]*.pt"):
        torch.load(path, weights_only=True)
    for path in folder.glob("runs/*/metrics/[0-9]*.parquet"):
        pq.read_table(path)
    for path in (*folder.glob("runs/*/*.json"), *folder.glob("corpora/*/manifest.json")):
        json.loads(path.read_text())


def query(database: Path, text: str, *values: Any) -> list[tuple[Any, ...]]:
    """Rows of a database, read only."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=60)) as connection:
        return list(connection.execute(text, values))


def _mlflow_agrees(
    store: Path, *, home: Home, submitted: list[Submitted], asked: list[Ask], runs: dict[str, LedgerRun]
) -> None:
    """MLflow shows each submission and each of its runs once, with the ledger's state and reason and the files' values."""
    of_runs = "SELECT experiments.name, run_uuid, status FROM runs JOIN experiments USING (experiment_id)"
    status = {(study, run_id): word for study, run_id, word in query(store, of_runs)}
    tags: dict[str, dict[str, str]] = {}
    for run_id, key, value in query(store, "SELECT run_uuid, key, value FROM tags"):
        tags.setdefault(run_id, {})[key] = value
    assert "RUNNING" not in status.values()
    for one in submitted:
        if not one.mirrored:
            continue
        here = [run_id for study, run_id in status if study == one.study]
        (parent,) = [run_id for run_id in here if tags[run_id].get("knockout.submission") == one.submission]
        shown = (status[one.study, parent], tags[parent]["knockout.state"], tags[parent].get("knockout.reason"))
        assert shown == (STATUS[one.state], one.state, one.reason)
        if one.state != "done":
            continue
        for identity in {ask.identity for ask in asked if ask.submission == one.submission}:
            (child,) = [run_id for run_id in here if tags[run_id].get("knockout.identity") == identity]
            run = runs[identity]
            told = (status[one.study, child], tags[child]["knockout.state"], tags[child]["knockout.reason"] or None)
            assert told == (STATUS[run.state], run.state, run.reason)
            if run.state in FINISHED:
                _curves_agree(store, run_id=child, folder=home.folder / "runs" / identity)


def _curves_agree(store: Path, *, run_id: str, folder: Path) -> None:
    points = query(store, f"SELECT key, step, value FROM metrics WHERE run_uuid = ? AND {CURVES}", run_id)
    assert max(Counter((key, step) for key, step, _ in points).values()) == 1
    rows = {(row["metric"], row["step"]): row["value"] for row in _rows(folder) if math.isfinite(row["value"])}
    assert {(key, step): value for key, step, value in points} == rows


def _prefect_agrees(store: Path, *, submitted: list[Submitted]) -> None:
    """No flow or task run is open; a submission has one flow run at most, in the state and with the reason of the ledger."""
    flows = query(store, FLOWS)
    known = {one.submission: one for one in submitted}
    assert max(Counter(name for name, *_ in flows).values(), default=0) <= 1
    for name, state, message in flows:
        one = known[name]
        crashed = one.state == "failed" and DIED.match(one.reason or "")
        expected = "CRASHED" if crashed else PREFECT.get(one.state, "FAILED")
        assert (name, state, message) == (name, expected, one.reason)
    assert query(store, "SELECT name, state_type FROM task_run WHERE state_type IN ('RUNNING', 'PENDING')") == []


def _optuna_agrees(store: Path, *, asked: list[Ask], runs: dict[str, LedgerRun], complete: bool) -> None:
    """Each trial is one of the ledger's trial runs, with its values, its state and its loss; none twice in a search."""
    trials = query(store, "SELECT study_id, trial_id, state FROM trials")
    values = dict(query(store, "SELECT trial_id, value FROM trial_values"))
    tried: dict[int, dict[str, float]] = {}
    for trial, name, value in query(store, "SELECT trial_id, param_name, param_value FROM trial_params"):
        tried.setdefault(trial, {})[name] = value
    of_trials = [runs[identity] for identity in {ask.identity for ask in asked if ask.role == "trial"}]
    assert max(Counter((study, json.dumps(tried.get(trial), sort_keys=True)) for study, trial, _ in trials).values()) == 1
    for _, trial, state in trials:
        if MINE[state] == "open":
            assert not complete, f"trial {trial} is {state}"
            continue
        rate = tried[trial]["learning_rate"]
        same = [run for run in of_trials if run.meaning["recipe"]["learning_rate"] == rate and run.state == MINE[state]]
        assert same, f"no run of the ledger is trial {trial} ({state}, learning rate {rate})"
        if state == "COMPLETE":
            assert values[trial] in [run.metrics["val_loss"] for run in same]
