"""`knockout check` and `knockout plan`: what is a mistake, and what is only noted."""

from __future__ import annotations

import json
import re

import pytest

STUDY = """study: noted
question: Can it be decided?
corpus: python-source
size: pico
variants:
  rms: {norm: {kind: rms}}
seeds: 3
claims:
  - {id: one, says: It diverges, expect: {variant: rms, is: diverges}}
"""
NOTE = "one can be neither shown nor refuted: were all or none of 3 seeds to diverge, p would be 0.25"


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.setenv("KNOCKOUT_HOME", str(tmp_path / "home"))
    path = tmp_path / "noted.yaml"
    path.write_text(STUDY)
    return path


def test_a_note_is_told_and_is_no_mistake(study, tell):
    code, said, wrong = tell("check", str(study))
    assert (code, wrong) == (0, "")
    assert said.splitlines()[0] == f"{study}: ok: 2 cells, 6 runs, 1 claim"
    assert said.splitlines()[1].startswith(f"{study}: note: {NOTE}")
    assert len(said.splitlines()) == 2


def test_a_plan_has_the_same_note(study, tell):
    code, said, _ = tell("plan", str(study), "--no-calibrate", "--json")
    assert code == 0
    assert any(flag["sentence"].startswith(NOTE) for flag in json.loads(said)["fairness"])


def test_a_mistake_of_one_study_names_it_among_others(study, tmp_path, tell):
    """Both are wrong for the same reason, each in its own file, at its own line."""
    short = tmp_path / "short.yaml"
    short.write_text(STUDY.replace("study: noted", "study: short").replace("seeds:", "baseline: {tokens: 51200}\nseeds:"))
    study.write_text(STUDY.replace("{norm: {kind: rms}}", "{tokens: 51200}"))
    code, _, wrong = tell("check", str(study), str(short))
    assert code == 2
    said = re.sub(r"\s+", " ", wrong)
    assert f"{study}:6:9: tokens: the warm-up of 100 steps is longer than the run of 50 steps" in said
    assert "more tokens: rms at pico in study noted" in said
    assert f"{short}:7:12: tokens: the warm-up of 100 steps is longer than the run of 50 steps" in said
    assert "more tokens: baseline at pico in study short" in said
    assert said.count("the warm-up of") == 2
