"""`knockout results` and `knockout report` for a study that was judged with other settings than are asked for."""

from __future__ import annotations

import json

import pytest

from knockout.ledger.process import this_process
from knockout.ledger.store import Ledger
from knockout.ledger.workspace import open_workspace


@pytest.fixture
def judged(tmp_path, project, monkeypatch):
    """A workspace, inside the project, in which `small` has reports with two and with three seeds."""
    monkeypatch.chdir(project)
    monkeypatch.setenv("KNOCKOUT_HOME", str(tmp_path / "home"))
    ledger = Ledger(open_workspace(None))
    facts = {"sizes": ["pico"], "study": {"declaration": (project / "ablations" / "small.yaml").read_text()}}
    for number in (2, 3):
        name, arguments = f"20260101-00000{number}-abcdef", f"--seeds {number}"
        ledger.submit(name, study="small", plan="", owner=this_process(), runs=[], arguments=arguments)
        ledger.conclude(name, state="done", reason=None, facts={**facts, "seeds": number})
    ledger.close()
    return tmp_path / "home"


COMMANDS = "`knockout report small --seeds 3`, `knockout report small --seeds 2`"


def test_a_report_that_is_not_there_names_those_that_are(judged, tell):
    code, said, wrong = tell("report", "small", "--size", "nano")
    assert (code, said) == (2, "")
    assert f"'small' has no report in {judged} with these settings, but with others: {COMMANDS}" in wrong.replace("\n", " ")
    assert "run it first" not in wrong


def test_without_options_the_newest_report_is_shown_and_named(judged, tell):
    code, said, wrong = tell("report", "small", "--json")
    assert (code, json.loads(said)["seeds"]) == (0, 3)
    assert wrong == "the newest report, that of `knockout report small --seeds 3`\n"


def test_results_of_other_settings_than_the_files_are_named_and_not_said_to_be_missing(judged, tell):
    code, said, wrong = tell("results", "small")
    assert (code, said) == (2, "")
    line = f"small has no verdicts in {judged} with the settings of its file, but with others: {COMMANDS}"
    assert line in wrong.replace("\n", " ")
    assert "run them with" not in wrong


def test_a_study_that_was_never_judged_is_told_how_to_be(judged, tell):
    code, _, wrong = tell("results", "other")
    assert code == 2
    assert "run them with `knockout reproduce --kind train`" in wrong.replace("\n", " ")
    code, _, wrong = tell("report", "other")
    assert code == 2
    assert "run it first with `knockout run other`" in wrong.replace("\n", " ")
