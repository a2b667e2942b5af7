"""Tuned studies in real processes: one search for every variant, pruned by evaluations, and what it does to fairness."""

from __future__ import annotations

import os
import signal

import pytest

SEARCH = """tune:
  learning_rate: {low: 1.0e-3, high: 1.0e-1}
  trials: 5
  pruner: {kind: median, startup: 2, after: 0.25}
"""
HANDICAPPED = """study: handicapped
question: Does a variant lose only because of its learning rate?
corpus: tiny
size: pico
baseline:
  {width: 16, heads: 2, depth: 2, context: 16, vocabulary: 32, batch: 4, tokens: 6400, warmup_steps: 10, evaluations: 20}
variants:
  fair: {norm: {kind: rms}}
  unfair: {norm: {kind: rms}, learning_rate: 0.00005}
seeds: 3
controls: {aa: false}
competence: {floor: unigram, by: 0.1}
claims:
  - id: worse
    says: The same model is worse
    expect: {variant: unfair, is: worse, than: fair, by: 0.1}
  - id: same
    says: The same model is as good
    expect: {variant: unfair, is: equivalent, to: fair}
"""


@pytest.fixture(scope="module")
def studies(shared_home):
    """The two studies, and the facts of one undisturbed run of each."""
    folder = shared_home.project / "ablations"
    (folder / "handicapped.yaml").write_text(HANDICAPPED)
    tuned = HANDICAPPED.replace("study: handicapped", "study: tuned").replace("seeds: 3\n", f"seeds: 3\n{SEARCH}")
    (folder / "tuned.yaml").write_text(tuned)
    said = {}
    for name in ("handicapped", "tuned"):
        code, said[name] = shared_home.run(name)
        assert code == 0, said[name]
    return said


def outcomes(home, study: str) -> dict[str, str]:
    return {verdict["claim"]: verdict["outcome"] for verdict in home.facts(study)["verdicts"]}


def searched(home) -> dict[str, list[tuple]]:
    """What the search of each variant came to, apart from its cost."""
    keys = ("number", "values", "state", "loss", "reason", "last", "extends")
    tuned = home.facts("tuned")["study"]["tuned"]
    return {one["variant"]: [tuple(trial[key] for key in keys) for trial in one["trials"]] for one in tuned}


def test_a_variant_with_a_bad_learning_rate_of_its_own_is_flagged_and_judged_worse(studies, shared_home):
    assert outcomes(shared_home, "handicapped") == {"worse": "supported", "same": "refuted"}
    serious = [flag for flag in shared_home.facts("handicapped")["fairness"] if flag["level"] == "serious"]
    assert [(flag["kind"], flag["variant"]) for flag in serious] == [("handicap", "unfair")]
    sentence = "unfair sets learning_rate to 5e-05 (baseline: 0.005) beside what it changes in the model"
    assert sentence in serious[0]["sentence"]
    assert sentence in studies["handicapped"].replace("\n", " ")
    code, said = shared_home.here("plan", "handicapped")
    assert code == 0
    assert sentence in said.replace("\n", " ")


def test_a_search_for_every_variant_undoes_the_handicap(studies, shared_home):
    assert outcomes(shared_home, "tuned") == {"worse": "refuted", "same": "supported"}
    assert [flag for flag in shared_home.facts("tuned")["fairness"] if flag["kind"] in ("handicap", "untuned")] == []
    found = searched(shared_home)
    assert found["fair"] == found["unfair"]
    patches = {row["variant"]: row["patch"] for row in shared_home.facts("tuned")["differences"]}
    assert patches["unfair"] == ["norm.kind: rms", "learning_rate: searched"]
    code, said = shared_home.here("plan", "tuned")
    assert code == 0
    assert "unfair: norm.kind: rms, learning_rate: searched" in said.replace("\n", " ")


def test_every_variant_gets_the_same_search_and_its_trials_are_runs(studies, shared_home):
    facts = shared_home.facts("tuned")
    for search in facts["study"]["tuned"]:
        trials = search["trials"]
        within = [trial["values"]["learning_rate"] for trial in trials if trial["extends"] is None]
        assert within == pytest.approx([10**-2, 10**-1.5, 10**-2.5, 10**-1, 10**-3])
        losses = {trial["loss"]: trial["values"] for trial in trials if trial["state"] == "done"}
        assert search["chosen"] == losses[min(losses)]
        assert all(trial["reason"].startswith("over the median of") for trial in trials if trial["state"] == "pruned")
        assert len({trial["tokens"] for trial in trials if trial["state"] == "done"}) == 1
        assert all(trial["tokens"] < 6400 for trial in trials if trial["state"] == "pruned")
    states = {run.state for run in shared_home.runs() if run.meaning["seed"] == 1_000_000}
    assert "done" in states
    assert states <= {"done", "pruned"}
    cost = {(row["variant"], row["role"]): row["num_runs"] for row in facts["cost"]}
    assert cost["baseline", "trial"] >= 5


def test_a_second_command_searches_and_trains_nothing(studies, shared_home):
    before = {run.identity: run.attempts for run in shared_home.runs()}
    first = searched(shared_home)
    code, said = shared_home.run("tuned")
    assert code == 0, said
    assert "nothing to train" in said
    assert {run.identity: run.attempts for run in shared_home.runs()} == before
    assert searched(shared_home) == first


def test_a_search_killed_in_the_middle_comes_to_the_same_end(studies, shared_home, home, until):
    process = home.begin("tuned")
    until(lambda: home.folder.joinpath("ledger.db").exists() and any(run.state == "done" for run in home.runs()))
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    code, said = home.run("tuned")
    assert code == 0, said
    assert searched(home) == searched(shared_home)


def test_a_search_over_what_is_no_setting_is_refused_at_its_line(studies, shared_home):
    path = shared_home.project / "ablations" / "mistaken.yaml"
    path.write_text(HANDICAPPED.replace("seeds: 3\n", f"seeds: 3\n{SEARCH.replace('learning_rate', 'learning_rat')}"))
    code, said = shared_home.here("check", "mistaken")
    assert code == 2
    assert "learning_rat: no such setting" in said
    assert "did you mean 'learning_rate'?" in said
