"""What is told of a plan before and after it is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from knockout.account.matching import plan_study
from knockout.declare.load import load_study
from knockout.declare.plan import Plan
from knockout.judge.fairness import Flag, fairness

STUDY = """\
study: trial
question: Is it fair?
corpus: python-source
size: pico
variants:
  other: {norm: {kind: rms}}
"""


def planned(tmp_path: Path, *, variant: str = "{norm: {kind: rms}}", more: str = "", size: str = "size: pico") -> Plan:
    path = tmp_path / "study.yaml"
    text = STUDY.replace("{norm: {kind: rms}}", variant).replace("size: pico", size)
    path.write_text(f"{text}{more}\n")
    return plan_study(load_study(path))


def kinds(flags: list[Flag]) -> list[tuple[str, str]]:
    return [(flag.kind, flag.level) for flag in flags]


RATE = "tune: {learning_rate: {low: 1.0e-3, high: 1.0e-1}}"


def test_a_study_that_tunes_nothing_says_so(tmp_path: Path):
    (flag,) = fairness(planned(tmp_path))
    assert (flag.kind, flag.level, flag.variant) == ("untuned", "note", None)
    assert flag.sentence.startswith("learning_rate is not tuned: every variant uses the baseline's")


def test_a_study_that_tunes_the_learning_rate_of_equal_models_has_nothing_to_say(tmp_path: Path):
    assert fairness(planned(tmp_path, more=RATE)) == []


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("learning_rate: 0.5", "learning_rate to 0.5 (baseline: 0.005)"),
        ("warmup_steps: 0", "warmup_steps to 0 (baseline: 100)"),
        ("clip: null", "clip to nothing (baseline: 1)"),
        ("batch: 4", "batch to 4 (baseline: 8)"),
        ("schedule: {kind: constant}", "schedule.kind to constant (baseline: cosine)"),
        ("optimizer: {beta2: 0.99}", "optimizer.beta2 to 0.99 (baseline: 0.95)"),
    ],
)
def test_a_part_that_is_trained_otherwise_than_the_baseline_is_a_handicap(setting: str, said: str, tmp_path: Path):
    variant = f"{{norm: {{kind: rms}}, {setting}}}"
    first, *_ = fairness(planned(tmp_path, variant=variant))
    assert (first.kind, first.level, first.variant, first.size) == ("handicap", "serious", "other", "pico")
    assert f"other sets {said}" in first.sentence
    if not setting.startswith("learning_rate"):  # which a search of it leaves no variant to set
        assert not any(flag.kind == "handicap" for flag in fairness(planned(tmp_path, variant=variant, more=RATE)))


def test_a_variant_that_is_about_its_training_alone_is_only_noted(tmp_path: Path):
    flags = fairness(planned(tmp_path, variant="{warmup_steps: 0}"))
    assert ("handicap", "note") in kinds(flags)
    assert "other changes only how it is trained: it sets warmup_steps to 0 (baseline: 100)" in [f.sentence for f in flags]


def test_other_settings_of_a_recipe_are_no_handicap(tmp_path: Path):
    assert kinds(fairness(planned(tmp_path, variant="{precision: bf16, evaluations: 4}"))) == [("untuned", "note")]


def test_unequal_budgets_and_sizes_are_told_unless_they_are_matched(tmp_path: Path):
    """Without its feed-forward pico has 74,624 of 141,056 parameters, and 196,608 of 327,680 FLOPs a token."""
    flags = fairness(planned(tmp_path, variant="{ffn: {kind: none}}", more=RATE))
    assert kinds(flags) == [("unequal", "note")]
    assert flags[0].sentence == "other has 0.529 times the parameters and is trained with 0.6 times the FLOPs of baseline"
    doubled = fairness(planned(tmp_path, variant="{tokens: 4096000}", more=RATE))
    assert [flag.sentence for flag in doubled] == ["other is trained with 2 times the FLOPs of baseline"]
    matched = f"{RATE}\nmatch: {{on: parameters, free: ffn.hidden, tolerance: 0.02}}"
    swiglu = fairness(planned(tmp_path, variant="{ffn: {kind: swiglu}}", more=matched))
    assert not any("parameters" in flag.sentence for flag in swiglu)


def test_variants_are_held_against_what_claims_compare_them_with(tmp_path: Path):
    claims = f"""  deep: {{depth: 4}}
  deep-other: {{depth: 4, norm: {{kind: rms}}}}
{RATE}
claims:
  - id: one
    says: Another norm is worse in a deep stack
    expect: {{variant: deep-other, is: worse, than: deep}}
"""
    flags = fairness(planned(tmp_path, more=claims.rstrip()))
    assert flags == []


def test_a_best_value_at_the_end_of_a_search_is_serious_and_stands_first(tmp_path: Path):
    plan = planned(tmp_path, variant="{ffn: {kind: none}}", more=RATE)
    flags = fairness(plan, tuned=[{"variant": "other", "size": "pico", "edges": {"learning_rate": "high"}}])
    assert kinds(flags)[0] == ("edge", "serious")
    assert flags[0].sentence.startswith("the best learning_rate of other is at the high end of what was searched")


def test_with_several_sizes_each_sentence_names_its_own(tmp_path: Path):
    plan = planned(tmp_path, variant="{norm: {kind: rms}, learning_rate: 0.5}", size="sizes: [pico, nano]")
    serious = [flag for flag in fairness(plan) if flag.level == "serious"]
    assert [(flag.size, flag.sentence.partition(" sets")[0]) for flag in serious] == [
        ("pico", "other at pico"), ("nano", "other at nano"),
    ]  # fmt: skip
    assert "(baseline: 0.003)" in serious[1].sentence
