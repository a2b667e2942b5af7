"""The log of results: what a section says, and which sections a second writing keeps."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest

from knockout.errors import WorkspaceError
from knockout.report.results import Section, merge, section, write_log
from knockout.report.spent import SizeReport, spent

DAY = "2026-11-29"


@pytest.fixture
def facts(report_facts: dict[str, Any]) -> dict[str, Any]:
    """A report's facts, to be changed."""
    return copy.deepcopy(report_facts)


def written(facts: dict[str, Any], *, size: str = "nano") -> str:
    return section(facts, size=size, date=DAY).text


def rows(text: str) -> dict[str, list[str]]:
    """The cells of each claim's row, by claim."""
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    cells = [re.split(r"(?<!\\) \| ", line.strip("| ")) for line in lines]
    return {first.strip("`"): rest for first, *rest in cells}


def searched(variant: str) -> dict[str, Any]:
    """A search of three trials that takes half a minute."""
    same = {"state": "done", "last": (60, 3.5), "tokens": 1000, "seconds": 10.0, "flops": 1e12}
    trials = [{"number": number, **same} for number in range(3)]
    return {"variant": variant, "size": "nano", "trials": trials, "chosen": {"learning_rate": 1e-2}, "edges": {}}


def test_a_section_holds_every_verdict_with_its_numbers_and_its_sentence(facts: dict[str, Any]):
    text = written(facts)
    found = rows(text)
    assert list(found) == [verdict["claim"] for verdict in facts["verdicts"]]
    assert len({verdict["outcome"] for verdict in facts["verdicts"]}) >= 3, "the story must not only have supported claims"
    for verdict in facts["verdicts"]:
        outcome, effect, _, seeds, _ = found[verdict["claim"]]
        assert outcome == f"**{verdict['outcome']}**"
        assert seeds == str(verdict["num_seeds"])
        assert verdict["reason"].replace("<", "&lt;") in text
        if verdict["interval"] and verdict["relation"] == "worse":
            shown = [float(number) for number in re.findall(r"[+-]?[\d.]+", effect.replace("\N{MINUS SIGN}", "-"))]
            ends = [verdict["effect"], verdict["interval"]["low"], verdict["interval"]["high"]]
            assert shown == pytest.approx(ends, rel=0.01)
    assert facts["command"] in text
    assert "torch 2.13" in text
    assert "2 cores" in text
    assert "seeds 0, 1, 2" in text


def test_its_cost_is_that_of_every_run_and_trial_once(facts: dict[str, Any]):
    twice = {**facts["runs"][0], "variant": "the-same-again"}
    facts["runs"].append(twice)
    facts["study"]["tuned"] = [searched(variant) for variant in ("baseline", "no-mask")]
    whole = spent([SizeReport(facts, "nano"), SizeReport(facts, "pico")])
    assert (whole.num_runs, whole.num_trials) == (12, 6)
    assert whole.seconds == pytest.approx(4 * (33 + 34 + 35) + 60)  # three seeds a variant take 33, 34 and 35 seconds
    assert whole.flops == pytest.approx(3 * 4.2e12 * 3 + 3 * 2.1e12 + 6e12)  # no-norm diverges half-way
    assert "12 runs and 6 trials, 7 min 48 s of training" in written(facts)


def test_what_was_searched_and_ended_on_an_edge_is_said(facts: dict[str, Any]):
    facts["study"]["tuned"] = [searched("baseline"), {**searched("no-mask"), "edges": {"learning_rate": "high"}}]
    said = "- Tuned: baseline to learning_rate 0.01; no-mask to learning_rate 0.01 (at the high end of what was searched)"
    assert said in written(facts)


def test_no_path_of_a_machine_is_in_it(facts: dict[str, Any]):
    facts["verdicts"][0]["reason"] = (
        "failed: /home/ada/.knockout/runs/0123/result.json is gone, 2 nats/token, 3 / 4 and/or 5"
    )
    facts["study"]["question"] = "Does /root/models/x.yaml learn?"
    text = written(facts)
    assert "failed: result.json is gone, 2 nats/token, 3 / 4 and/or 5" in text
    assert "Does x.yaml learn?" in text
    assert not re.search(r"ada|/root|/home|\.knockout", text)


def test_a_claims_source_is_in_the_table_where_one_is_named(facts: dict[str, Any]):
    assert "source |" not in written(facts)
    facts["verdicts"][1]["source"] = "Petty et al. 2024 | disagree"
    text = written(facts)
    assert "| cost | source |" in text
    assert rows(text)[facts["verdicts"][1]["claim"]][-1] == r"Petty et al. 2024 \| disagree"
    assert rows(text)[facts["verdicts"][0]["claim"]][-1] == "–"


def test_what_spoils_the_verdicts_stands_above_them_and_what_does_not_below(facts: dict[str, Any]):
    facts["competence"][0] |= {"met": False, "sentence": "the baseline has not learnt enough"}
    facts["controls"] = [
        {"control": "A-A", "size": "nano", "passed": False, "sentence": "the baseline differs from itself"},
        {"control": "shuffled", "size": "nano", "passed": True, "sentence": "the baseline stays over the floor"},
        {"control": "A-A", "size": "pico", "passed": False, "sentence": "of another size"},
    ]
    facts["fairness"] = [
        {"level": "serious", "size": None, "sentence": "no-mask has a bad learning rate"},
        {"level": "note", "size": "nano", "sentence": "parameters differ"},
        {"level": "serious", "size": "pico", "sentence": "of another size"},
    ]
    text = written(facts)
    above, below = text.split("| claim |")
    assert "the baseline has not learnt enough" in above
    assert "**Control failed**: the baseline differs from itself" in above
    assert "no-mask has a bad learning rate" in above
    assert "Controls: the baseline stays over the floor." in below
    assert "Fairness: parameters differ." in below
    assert "of another size" not in text


def test_a_claim_over_several_sizes_stands_at_the_last(facts: dict[str, Any]):
    trend = {**facts["verdicts"][0], "claim": "T9-trend", "size": "pico … nano"}
    facts["verdicts"].append(trend)
    facts["sizes"] = ["pico", "nano"]
    assert "T9-trend" in rows(written(facts))
    assert "T9-trend" not in rows(written(facts, size="pico"))


def test_the_same_section_again_changes_nothing(facts: dict[str, Any]):
    once = merge(None, sections=[section(facts, size="nano", date=DAY)])
    assert merge(once, sections=[section(copy.deepcopy(facts), size="nano", date=DAY)]) == once
    assert once.count("<!-- knockout results") == once.count("\n## ") == 1


def test_a_section_replaces_that_of_its_study_size_and_day_and_no_other():
    old = [
        Section("residual", "pico", "2026-11-28", "## older\n\nkept\n"),
        Section("residual", "pico", DAY, "## today\n\nreplaced\n"),
        Section("residual", "nano", DAY, "## other size\n\nkept too\n"),
    ]
    new = [Section("residual", "pico", DAY, "## today\n\nnew\n"), Section("ffn", "pico", DAY, "## ffn\n\nnew\n")]
    text = merge(merge(None, sections=old), sections=new)
    assert "replaced" not in text
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["ffn", "other size", "today", f"older (superseded by {DAY})"]
    assert merge(merge(None, sections=new), sections=[old[0], old[2]]) == text, "the order of writing must not show"


def test_what_a_person_wrote_above_the_sections_stays():
    text = merge("# Our log\n\nRead me first.\n", sections=[Section("ffn", "pico", DAY, "## ffn\n")])
    again = merge(text, sections=[Section("ffn", "nano", DAY, "## ffn\n")])
    assert again.startswith("# Our log\n\nRead me first.\n\n<!-- knockout results · ffn · nano")


def test_a_log_that_cannot_be_read_is_not_overwritten(tmp_path: Path):
    log = tmp_path / "RESULTS.md"
    log.write_bytes(b"\xff\xfe not text")
    with pytest.raises(WorkspaceError, match=r"RESULTS\.md cannot be read"):
        write_log(log, sections=[])
    assert log.read_bytes() == b"\xff\xfe not text"
