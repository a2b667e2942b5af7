"""Several commands on one workspace."""

from __future__ import annotations

import json
import shutil

import pytest

COMMANDS = 6


@pytest.fixture(scope="module")
def six(shared_home):
    """Six identical commands, started at once on a workspace that does not exist yet."""
    processes = [shared_home.begin("small") for _ in range(COMMANDS)]
    return [shared_home.finish(process) for process in processes]


def verdicts(said: str) -> str:
    """The tables at the end."""
    return said[said.index("size  variant") :]


def test_six_identical_commands_train_each_run_once(six, shared_home):
    assert [code for code, _ in six] == [0] * COMMANDS, six
    for _, said in six:
        assert "Traceback" not in said
        assert "locked" not in said
    assert len({verdicts(said) for _, said in six}) == 1
    assert [(run.state, run.attempts) for run in shared_home.runs()] == [("done", 1)] * 2
    assert shared_home.submission_states() == ["done"] * COMMANDS
    assert shared_home.alive() == {}


def test_two_studies_train_a_baseline_that_they_share_once(six, shared_home):
    code, said = shared_home.here("plan", "other", "--json", "--no-calibrate")
    assert code == 0, said
    cells = {cell["variant"]: cell for cell in json.loads(said)["cells"]}
    assert (cells["baseline"]["reused"], cells["no-norm"]["reused"]) == (1, 0)
    code, said = shared_home.run("other")
    assert code == 0, said
    assert "2 runs: 1 reused, 1 to train" in said
    assert [run.attempts for run in shared_home.runs()] == [1, 1, 1]


def test_status_report_and_why_tell_of_them(six, shared_home):
    code, said = shared_home.here("status", "--json")
    assert code == 0, said
    assert {item["state"] for item in json.loads(said)["submissions"]} == {"done"}
    code, said = shared_home.here("report", "small")
    assert code == 0
    assert said.strip() == str(shared_home.folder / "reports" / "small" / "report.html")
    changed = next(run for run in shared_home.runs() if run.meaning["architecture"]["residual"]["kind"] == "none")
    code, said = shared_home.here("why", changed.identity[:10])
    assert code == 0
    assert "residual.kind" in said
    code, said = shared_home.here("why", "")
    assert (code, said.strip()) == (2, "more than one run begins with ''")


def test_a_damaged_result_and_a_removed_one_are_trained_again_and_said(six, shared_home):
    before = {run.identity: run for run in shared_home.runs()}
    damaged, removed = (run.identity for run in before.values() if run.meaning["architecture"]["norm"]["kind"] != "none")
    weights = shared_home.folder / "runs" / damaged / "weights.pt"
    weights.write_bytes(weights.read_bytes()[:500])
    shutil.rmtree(shared_home.folder / "runs" / removed)
    code, said = shared_home.run("small")
    assert code == 0, said
    assert said.count("its files are gone or damaged; it is trained again") == 2
    for run in shared_home.runs():
        assert run.state == "done"
        learnt = [name for name in before[run.identity].metrics if name not in ("tokens_per_second", "peak_memory_bytes")]
        assert [run.metrics[name] for name in learnt] == [before[run.identity].metrics[name] for name in learnt]
        assert run.attempts == (2 if run.identity in (damaged, removed) else 1)
