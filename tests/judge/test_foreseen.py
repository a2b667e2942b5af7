"""What is said of a study's claims and variants before anything runs."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import pytest

from knockout.account.matching import plan_study
from knockout.declare.load import Overrides, load_study
from knockout.judge.fairness import fairness
from knockout.judge.foreseen import foreseen
from knockout.judge.statistics.multiple import holm

STUDY = """\
study: trial
question: Can it be decided?
corpus: python-source
size: pico
variants:
  rms: {norm: {kind: rms}}
  deep: {depth: 4}
seeds: 5
claims:
"""
DIVERGES = "{variant: rms, is: diverges}"
WORSE = "{variant: rms, is: worse}"


def sentences(tmp_path: Path, *expect: str, text: str = STUDY, seeds: int | None = None, more: str = "") -> list[str]:
    claims = "".join(f"  - {{id: T{i}, says: So, expect: {one}}}\n" for i, one in enumerate(expect))
    path = tmp_path / "study.yaml"
    path.write_text(f"{text}{claims}{more}")
    return [flag.sentence for flag in foreseen(plan_study(load_study(path, overrides=Overrides(seeds=seeds))))]


def test_a_plain_study_has_nothing_to_say(tmp_path: Path):
    assert sentences(tmp_path, WORSE, "{variant: deep, is: better, by: 0.1}", "{variant: rms, is: causal}") == []


def test_a_variant_that_comes_to_another_at_one_size_is_noted_there(tmp_path: Path):
    several = STUDY.replace("size: pico", "sizes: [pico, nano]").replace("deep:", "deeper: {depth: 4}\n  deep:")
    assert sentences(tmp_path, WORSE, text=several) == [
        "deep at pico changes nothing against deeper: both are one model, trained by the same runs",
        "deeper at nano changes nothing against baseline: both are one model, trained by the same runs",
        "deep at nano changes nothing against baseline: both are one model, trained by the same runs",
    ]


def test_claims_of_which_one_must_be_false_are_named_together(tmp_path: Path):
    claims = (WORSE, "{variant: rms, is: better, by: 0.1}", "{variant: rms, is: equivalent}", "{variant: deep, is: worse}")
    assert sentences(tmp_path, *claims) == [
        "T0, T1 and T2 cannot all be true, and each takes its share of alpha = 0.05, which the others would have"
    ]
    assert sentences(tmp_path, "{variant: rms, is: causal}", "{variant: rms, is: not_causal}") == []


def coins(seeds: int) -> float:
    """Two-sided p of all heads or all tails of a fair coin, by counting."""
    tosses = list(itertools.product((0, 1), repeat=seeds))
    return sum(sum(toss) in (0, seeds) for toss in tosses) / len(tosses)


@pytest.mark.parametrize("others", [0, 1, 3, 7])
@pytest.mark.parametrize("seeds", [2, 5, 6, 7, 8, 9])
def test_a_divergence_that_seeds_cannot_show_is_noted_with_how_many_can(seeds: int, others: int, tmp_path: Path):
    claims = [f"{{variant: deep, is: worse, by: 0.{i + 1}}}" for i in range(others)]
    said = sentences(tmp_path, DIVERGES, *claims, seeds=seeds)
    enough = next(n for n in itertools.count(1) if coins(n) * (others + 1) <= 0.05)
    if seeds >= enough:
        assert said == []
        return
    (sentence,) = said
    assert sentence.endswith(f"; {enough} seeds would do")
    assert f"of {seeds} seeds to diverge, p would be {coins(seeds):.3g}" in sentence
    assert ("can be neither shown nor refuted" in sentence) == (coins(seeds) > 0.05)


def test_the_claims_that_must_be_decided_first_are_as_many_as_holms_correction_needs(tmp_path: Path):
    claims = [f"{{variant: deep, is: worse, by: 0.{i + 1}}}" for i in range(7)]
    (sentence,) = sentences(tmp_path, DIVERGES, *claims, seeds=7)
    (first,) = re.findall(r"only once (\d) of the other 7 claims are decided more clearly", sentence)
    assert "with 8 claims Holm's first step asks for 0.00625" in sentence
    for clear, decided in ((int(first) - 1, False), (int(first), True)):
        ours, *_ = holm([coins(7), *([1e-6] * clear), *([0.9] * (7 - clear))])
        assert (ours.p <= 0.05) is decided


def test_looks_have_a_level_of_their_own_and_the_best_of_them_counts(tmp_path: Path):
    """Of 12 seeds, the last 6 are looked at at half of alpha: 2 (1/2)^12 is under it."""
    assert sentences(tmp_path, DIVERGES, seeds=3, more="settle: [6, 12]\n") == []
    (sentence,) = sentences(tmp_path, DIVERGES, seeds=3, more="settle: [6]\n")
    assert f"over the level {0.025:g}; 6 seeds in one look would do" in sentence
    assert math.isclose(coins(6), 0.03125)


def test_one_seed_judges_nothing_but_what_is_calculated(tmp_path: Path):
    assert sentences(tmp_path, "{variant: rms, is: causal}", seeds=1) == []
    assert sentences(tmp_path, WORSE, DIVERGES, seeds=1) == [
        "with one seed T0 and T1 cannot be judged, for one alone has no spread: ask for two seeds or more"
    ]


def test_a_report_and_a_plan_have_the_same_notes(tmp_path: Path):
    sentences(tmp_path, WORSE, "{variant: rms, is: better}")
    flags = fairness(plan_study(load_study(tmp_path / "study.yaml")))
    assert [(flag.kind, flag.level) for flag in flags] == [("unequal", "note"), ("untuned", "note"), ("opposites", "note")]
