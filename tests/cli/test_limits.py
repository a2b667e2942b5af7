"""Time limits of a study's runs and of all of it, from its file and from the command line."""

from __future__ import annotations

import json

from commands import ENDLESS


def declare(home, limits: str) -> str:
    """The small study with limits, in a file of its own; the file's path."""
    path = home.folder.parent / "limited.yaml"
    path.write_text((home.project / "ablations" / "small.yaml").read_text() + f"limits: {limits}\n")
    return str(path)


def test_a_study_at_its_limit_reports_what_is_finished_and_each_command_has_the_whole_limit(home):
    assert home.run("small")[0] == 0
    code, said = home.run("small", "--seeds", "2", "--study-seconds", "1")
    assert code == 1, said
    assert "Traceback" not in said
    assert "stopped  at the study's limit of 1 s; the same command goes on from here" in said
    last = home.submissions()[-1]
    assert (last.state, last.reason) == ("timed-out", "the study's limit of 1 s")
    assert {(run.state, run.reason) for run in home.runs()} <= {
        ("done", None), ("planned", None), ("timed-out", "the study's limit of 1 s"),
    }  # fmt: skip
    facts = home.facts("small", "--seeds", "2")
    states = [run["state"] for run in facts["runs"]]
    unfinished = len(states) - states.count("done")
    assert states.count("done") == 2  # the first seed of each variant
    assert facts["study"]["unfinished"] == f"{unfinished} of {len(states)} runs have no result: {last.reason}"
    (page,) = (home.folder / "reports" / "small").glob("*/report.html")
    assert facts["study"]["unfinished"].replace("'", "&#39;") in page.read_text()
    code, said = home.run("small", "--seeds", "2", "--study-seconds", "1000")
    assert code == 0, said
    assert home.facts("small", "--seeds", "2")["study"]["unfinished"] is None


def test_a_declared_limit_ends_runs_with_a_checkpoint_and_the_command_line_overrides_it(home, until):
    study = declare(home, "{run_seconds: 3, study_seconds: 1000}")
    code, said = home.run(study, *ENDLESS)
    assert code == 1, said
    assert "timed-out: longer than 3 seconds" in said
    assert {run.state for run in home.runs()} == {"timed-out"}
    assert max(run.step for run in home.runs()) == home.newest_step() > 0
    process = home.begin(study, *ENDLESS, "--run-seconds", "1000", "--study-seconds", "999")
    before = home.newest_step()
    until(lambda: home.newest_step() > before or process.poll() is not None)
    assert process.poll() is None


def test_a_limit_that_is_no_time_is_refused(home):
    code, said = home.here("check", declare(home, "{run_seconds: 0, study_second: 1}"))
    assert code == 2
    assert "limits.run_seconds: 0 should be greater than 0" in said
    assert "did you mean 'study_seconds'?" in said


def test_a_limit_that_falls_in_a_search_is_reported_with_every_judged_run_as_not_run(home):
    path = home.folder.parent / "searched.yaml"
    search = "tune: {learning_rate: {low: 1.0e-3, high: 1.0e-1}, trials: 2}\nlimits: {study_seconds: 15}\n"
    path.write_text(
        (home.project / "ablations" / "small.yaml").read_text().replace("study: small", "study: searched") + search
    )
    code, said = home.run(str(path), *ENDLESS, "--slots", "1")
    assert code == 1, said
    assert "Traceback" not in said
    assert "stopped  at the study's limit of 15 s; the same command goes on from here" in said
    assert [(one.state, one.reason) for one in home.submissions()] == [("timed-out", "the study's limit of 15 s")]
    code, said = home.here("report", str(path), *ENDLESS, "--json")
    assert code == 0, said
    facts = json.loads(said[said.index("{") :])
    assert {run["state"] for run in facts["runs"]} == {"planned"}
    assert facts["study"]["unfinished"].endswith("runs have no result: the study's limit of 15 s")
