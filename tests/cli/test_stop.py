"""`knockout stop`: from another terminal, by study or submission, told alike in ledger, MLflow and Prefect."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from commands import ENDLESS

REASON = "stopped by `knockout stop`"


def rows(database: Path, query: str) -> list[tuple]:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return list(connection.execute(query))


def test_a_study_is_stopped_from_another_terminal_and_every_mirror_says_so(home, until):
    process = home.start("run", "small", *ENDLESS)
    until(lambda: home.newest_step() or process.poll() is not None)
    code, said = home.knockout("stop", "small")
    assert code == 0, said
    assert f"cancelled: {REASON}" in said
    code, output = home.finish(process)
    assert code == 130, output
    assert output.strip().endswith(f"knockout: {REASON}; the same command goes on from here")
    assert "Traceback" not in output
    assert home.submission_states() == ["cancelled"]
    assert {(run.state, run.reason) for run in home.runs() if run.step} == {("cancelled", REASON)}
    assert max(run.step for run in home.runs()) == home.newest_step() > 0
    tags = "SELECT run_uuid, value FROM tags WHERE key = 'knockout.reason'"
    ended = rows(home.folder / "mlflow" / "mlflow.db", f"SELECT status, value FROM runs LEFT JOIN ({tags}) USING (run_uuid)")
    assert len(ended) >= 2  # the submission, and the runs that had begun
    assert set(ended) == {("KILLED", REASON)}
    prefect = home.folder / "prefect" / "prefect.db"
    assert [ended[1:] for ended in home.flow_runs()] == [("Cancelled", REASON)]
    assert rows(prefect, "SELECT DISTINCT state_name FROM task_run WHERE name LIKE '% · s_'") == [("Cancelled",)]
    assert home.alive() == {}


def test_a_submission_is_stopped_by_its_name_and_the_same_command_goes_on(home, until):
    first, second = home.begin("small", *ENDLESS), home.begin("other", *ENDLESS)
    until(lambda: len(list(home.folder.glob("runs/*/checkpoints"))) > 2)
    small = next(one for one in home.submissions() if one.study == "small")
    code, said = home.knockout("stop", small.submission)
    assert (code, small.submission in said) == (0, True), said
    assert home.finish(first)[0] == 130
    assert {one.study: one.state for one in home.submissions()} == {"small": "cancelled", "other": "running"}
    assert second.poll() is None


def test_where_nothing_runs_it_says_so_and_an_unknown_name_is_refused(home):
    assert home.here("stop", "small") == (0, "nothing of 'small' is running\n")
    code, said = home.here("stop", "smal")
    assert code == 2
    assert "no study or submission 'smal'" in said
    assert "did you mean 'small'?" in said
