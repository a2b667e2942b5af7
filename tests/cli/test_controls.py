"""Controls and further looks in real processes: what is trained beside the question, and what is added while it is open."""

from __future__ import annotations

import pytest

STUDY = """study: watched
question: Does a tiny stack learn a chain without its residual path?
corpus: tiny
size: pico
baseline:
  {width: 16, heads: 2, depth: 2, context: 16, vocabulary: 32, batch: 4, tokens: 6400, warmup_steps: 10, evaluations: 4}
variants:
  no-residual: {residual: {kind: none}}
  rms: {norm: {kind: rms}}
seeds: 3
settle: [4, 5]
controls: {shuffled: true}
competence: {floor: unigram, by: 0.1}
claims:
  - id: clear
    says: It learns less without
    expect: {variant: no-residual, is: worse, than: baseline, by: 0.01}
  - id: subtle
    says: Another norm is far worse or far better, by about what it is
    expect: {variant: rms, is: equivalent, to: baseline, margin: 0.000001}
"""


@pytest.fixture(scope="module")
def watched(shared_home):
    """What the study says when it is run once, once more, and to the end of its looks."""
    (shared_home.project / "ablations" / "watched.yaml").write_text(STUDY)
    said = []
    for arguments in ([], [], ["--settle"], ["--settle"]):
        code, text = shared_home.run("watched", *arguments)
        assert code == 0, text
        said.append(text)
    return said


def test_the_baseline_is_trained_again_and_on_shuffled_tokens_and_both_are_judged(watched, shared_home):
    facts = shared_home.facts("watched")
    aa, shuffled = facts["controls"]
    assert (aa["control"], aa["num_seeds"]) == ("A-A", 3)
    assert (shuffled["control"], shuffled["passed"]) == ("shuffled", True)
    assert shuffled["effect"] >= 0.0  # over the unigram floor, where the baseline itself is far under it
    assert facts["competence"][0]["met"]
    assert aa["sentence"] in (shared_home.folder / "reports" / "watched" / "report.html").read_text()
    trained = [run for run in facts["runs"] if run["variant"].startswith("baseline ")]
    assert len(trained) == 4


def test_controls_are_in_no_figure_and_in_the_cost(watched, shared_home):
    facts = shared_home.facts("watched")
    assert facts["variants"] == ["baseline", "no-residual", "rms"]
    assert {row["variant"] for row in facts["cost"]} > set(facts["variants"])
    assert "13 runs: 13 reused, nothing to train" in watched[1]  # 3 × 3 judged, 3 again, 1 shuffled


def test_noise_is_told_for_every_comparison(watched, shared_home):
    (noise,) = shared_home.facts("watched")["noise"]
    assert noise["degrees"] == 6
    assert [pair["variant"] for pair in noise["pairs"]] == ["no-residual", "rms"]
    assert all(-1.0 <= pair["correlation"] <= 1.0 for pair in noise["pairs"])


def test_further_looks_add_seeds_only_where_a_claim_is_open_and_each_has_its_level(watched, shared_home):
    first, last = (shared_home.facts("watched", *changes)["verdicts"] for changes in ([], ["--settle"]))
    clear, subtle = last
    assert (clear["num_seeds"], subtle["num_seeds"]) == (3, 5)
    assert clear["outcome"] == first[0]["outcome"] == "supported"
    assert "look 1 of 3 at level 0.03" in clear["reason"]  # 0.05 × 3 / 5, as before the other looks
    assert "look 3 of 3 at level 0.01" in subtle["reason"]
    assert clear["interval"]["level"] == pytest.approx(0.97)
    assert "open at 3 seeds; going on to 4 for baseline, rms" in watched[2]
    assert "open at 4 seeds" in watched[3]
    assert "`knockout run watched --settle` goes on to 4 seeds" in watched[0]
    assert "to train" not in watched[3].replace("nothing to train", "")


def test_a_report_says_when_it_is_not_the_last_word(watched, shared_home):
    path = shared_home.project / "ablations" / "watched.yaml"
    code, said = shared_home.here("report", "watched")
    assert code == 0
    assert "a newer report is that of `knockout report watched --settle`" in said
    assert "has changed" not in said
    path.write_text(STUDY.replace("by: 0.01", "by: 0.02"))
    code, said = shared_home.here("report", "watched", "--settle")
    path.write_text(STUDY)
    assert code == 0
    assert "has changed since these verdicts: `knockout run watched --settle` judges it as it is now" in said
    assert "newer" not in said


def test_a_study_without_further_looks_cannot_be_settled(watched, shared_home):
    (shared_home.project / "ablations" / "once.yaml").write_text(STUDY.replace("settle: [4, 5]\n", ""))
    code, said = shared_home.run("once", "--settle")
    assert (code, "declares no further looks" in said) == (2, True), said
