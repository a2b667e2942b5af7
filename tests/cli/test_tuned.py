"""Tuned studies in real processes: one search for every variant, pruned by evaluations, and what it does to fairness."""

from __future__ import annotations

import os
import shutil
import signal

import pytest

from knockout.judge.sentences import listed

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

TUNED = (
    HANDICAPPED.replace("study: handicapped", "study: tuned")
    .replace("seeds: 3\n", f"seeds: 3\n{SEARCH}")
    .replace(", learning_rate: 0.00005", "")
)


@pytest.fixture(scope="module")
def studies(shared_home):
    """The two studies, and the facts of one undisturbed run of each."""
    folder = shared_home.project / "ablations"
    (folder / "handicapped.yaml").write_text(HANDICAPPED)
    (folder / "tuned.yaml").write_text(TUNED)
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
    serious = [flag for flag in shared_home.facts("handicapped")["fairness"] if flag["kind"] == "handicap"]
    assert [(flag["level"], flag["variant"]) for flag in serious] == [("serious", "unfair")]
    sentence = "unfair sets learning_rate to 5e-05 (baseline: 0.005) beside what it changes in the model"
    assert sentence in serious[0]["sentence"]
    assert sentence in studies["handicapped"].replace("\n", " ")
    code, said = shared_home.here("plan", "handicapped")
    assert code == 0
    assert sentence in said.replace("\n", " ")


def test_a_search_for_every_variant_takes_the_place_of_a_learning_rate_of_its_own(studies, shared_home):
    assert outcomes(shared_home, "tuned") == {"worse": "refuted", "same": "supported"}
    assert [flag for flag in shared_home.facts("tuned")["fairness"] if flag["kind"] in ("handicap", "untuned")] == []
    found = searched(shared_home)
    assert found["fair"] == found["unfair"]
    patches = {row["variant"]: row["patch"] for row in shared_home.facts("tuned")["differences"]}
    assert patches["unfair"] == ["norm.kind: rms"]
    (note,) = [flag["sentence"] for flag in shared_home.facts("tuned")["fairness"] if flag["kind"] == "twins"]
    assert note == "unfair changes nothing against fair: both are one model, trained by the same runs"
    path = shared_home.project / "ablations" / "overwritten.yaml"
    path.write_text(HANDICAPPED.replace("seeds: 3\n", f"seeds: 3\n{SEARCH}"))
    code, said = shared_home.here("check", "overwritten")
    assert code == 2
    assert "variants.unfair.learning_rate: the search of learning_rate overwrites what 'unfair' sets" in said


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


def test_pruned_trials_that_are_trained_to_their_ends_say_whether_the_choice_would_have_been_another(
    studies, shared_home, home
):
    """The same search without a pruner says what it would have been, and finds every run trained; what pruning saved follows
    from its decisions as before."""
    whole = (shared_home.project / "ablations" / "tuned.yaml").read_text().replace("study: tuned", "study: whole")
    pruner = "pruner: {kind: median, startup: 2, after: 0.25}"
    assert pruner in whole
    (shared_home.project / "ablations" / "whole.yaml").write_text(whole.replace(pruner, "pruner: {kind: none}"))
    shutil.copytree(shared_home.folder, home.folder, dirs_exist_ok=True)
    for command in (("tuned", "--check-pruning"), ("whole",), ("tuned",)):
        code, said = home.run(*command)
        assert code == 0, said
        assert command == ("tuned", "--check-pruning") or "nothing to train" in said
        if command == ("tuned", "--check-pruning"):
            facts = home.facts("tuned")
            trained = [t for one in facts["study"]["tuned"] for t in one["trials"] if not t["reused"]]
            assert {trial["state"] for trial in trained} == {"pruned"}
            assert facts["seconds"]["training"] == pytest.approx(sum(trial["seconds"] for trial in trained))
    trials = [trial for one in home.facts("tuned")["study"]["tuned"] for trial in one["trials"]]
    pruned = [trial for trial in trials if trial["state"] == "pruned"]
    assert pruned
    assert {trial["tokens"] for trial in pruned} == {6400}
    # Each trial is 100 steps: what was spared lies after the step that its search ended it at.
    spared = sum(100 - trial["last"][0] for trial in pruned) / (100 * len(trials))
    assert f"tuning: {len(trials)} trials, {len(pruned)} pruned: {spared:.0%} of the tuning tokens saved" in said
    assert searched(home) == searched(shared_home)
    chosen = {
        name: {one["variant"]: one["chosen"] for one in home.facts(name)["study"]["tuned"]} for name in ("tuned", "whole")
    }
    others = [name for name in chosen["whole"] if chosen["tuned"][name] != chosen["whole"][name]]
    who = f"the {'search' if len(others) == 1 else 'searches'} of {listed(others)}" if others else "no search"
    assert f"all {len(pruned)} pruned trials were trained to their ends as well: {who} would have chosen otherwise" in said
    in_whole = {
        (one["variant"], trial["values"]["learning_rate"]): trial["loss"]
        for one in home.facts("whole")["study"]["tuned"]
        for trial in one["trials"]
    }
    for one in home.facts("tuned")["study"]["tuned"]:
        for trial in one["trials"]:
            if trial["state"] == "pruned":
                assert trial["in_full"]["loss"] == in_whole[one["variant"], trial["values"]["learning_rate"]]


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
    path.write_text(TUNED.replace("learning_rate: {low", "learning_rat: {low"))
    code, said = shared_home.here("check", "mistaken")
    assert code == 2
    assert "learning_rat: no such setting" in said
    assert "did you mean 'learning_rate'?" in said
