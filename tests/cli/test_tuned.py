"""A tuned study in real processes: the same search for every variant, trials in the ledger, nothing searched twice."""

from __future__ import annotations

import pytest

SEARCH = "tune: {learning_rate: {low: 1.0e-4, high: 1.0e-2}, trials: 3}\n"


@pytest.fixture
def tuned(home):
    study = (home.project / "ablations" / "small.yaml").read_text()
    path = home.project / "ablations" / "tuned.yaml"
    path.write_text(study.replace("study: small", "study: tuned").replace("seeds: 1\n", f"seeds: 1\n{SEARCH}"))
    return home


def test_every_variant_gets_the_same_search_and_a_second_command_reuses_it(tuned):
    code, said = tuned.run("tuned")
    assert code == 0, said
    assert said.count("tuned to learning_rate") == 2
    searches = tuned.facts("tuned")["study"]["tuned"]
    assert {search["variant"] for search in searches} == {"baseline", "no-residual"}
    for search in searches:
        values = [trial["values"]["learning_rate"] for trial in search["trials"]]
        assert values == pytest.approx([1e-4, 1e-3, 1e-2])
        losses = [trial["loss"] for trial in search["trials"]]
        assert search["chosen"]["learning_rate"] == values[losses.index(min(losses))]
    judged = {run["variant"]: run for run in tuned.facts("tuned")["runs"]}
    assert set(judged) == {"baseline", "no-residual"}
    runs = tuned.runs()
    assert len(runs) == 2 * 3 + 2
    seeds = sorted(run.meaning["seed"] for run in runs)
    assert seeds == [0, 0] + [1_000_000] * 6
    chosen = sorted(search["chosen"]["learning_rate"] for search in searches)
    assert sorted(run.meaning["recipe"]["learning_rate"] for run in runs if run.meaning["seed"] == 0) == chosen

    code, said = tuned.run("tuned")
    assert code == 0, said
    assert "nothing to train" in said
    assert [run.attempts for run in tuned.runs()] == [1] * 8


def test_a_search_over_what_is_no_setting_is_refused_at_its_line(tuned):
    path = tuned.project / "ablations" / "tuned.yaml"
    path.write_text(path.read_text().replace("tune: {learning_rate:", "tune: {learning_rat:"))
    code, said = tuned.knockout("check", "tuned")
    assert code == 2
    assert "learning_rat: no such setting" in said
    assert "did you mean 'learning_rate'?" in said
