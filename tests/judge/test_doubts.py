"""What results give reason to doubt: what had no chance to learn, what won by luck, which seed lies far off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from knockout.account.matching import plan_study
from knockout.declare.load import load_study
from knockout.declare.plan import Plan
from knockout.judge import RunRecord
from knockout.judge.doubts import doubts
from knockout.judge.flag import Flag

MakeCell = Callable[..., list[RunRecord]]
STUDY = """\
study: trial
question: Is it sound?
corpus: python-source
size: pico
variants:
  a: {norm: {kind: rms}}
  b: {ffn: {kind: none}}
claims:
  - {id: A, says: it, expect: {variant: a, is: worse}}
  - {id: B, says: it, expect: {variant: b, is: worse, than: a}}
"""
FLOORS = {"unigram": 5.0, "bigram": 4.0}


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    path = tmp_path / "study.yaml"
    path.write_text(STUDY)
    return plan_study(load_study(path))


@pytest.fixture
def doubted(plan: Plan, cell: MakeCell) -> Callable[..., list[Flag]]:
    def make(*, tuned: Sequence[dict[str, Any]] = (), **losses: list[float | None]) -> list[Flag]:
        given = {"baseline": [3.0, 3.01, 3.02], "a": [3.1, 3.11, 3.12], "b": [3.2, 3.21, 3.22], **losses}
        records = [run for name, values in given.items() for run in cell(name, values, size="pico")]
        return doubts(plan, records=records, floors={"pico": FLOORS}, tuned=tuned)

    return make


def search(variant: str, *trials: tuple[float, str, float], seeds: int = 1) -> dict[str, Any]:
    """Trials as (learning rate, state, loss, of the last evaluation where it was pruned)."""
    told = [
        {
            "number": number,
            "values": {"learning_rate": rate},
            "state": state,
            "loss": loss if state == "done" else None,
            "last": (100, loss) if state != "diverged" else None,
            "identities": [f"{number}-{seed}" for seed in range(seeds)],
        }
        for number, (rate, state, loss) in enumerate(trials)
    ]
    best = min((trial for trial in trials if trial[1] == "done"), key=lambda trial: trial[2])
    chosen = {"learning_rate": best[0]}
    return {"variant": variant, "size": "pico", "metric": "val_loss", "chosen": chosen, "trials": told}


def test_a_sound_study_gives_no_reason_to_doubt(doubted: Callable[..., list[Flag]]):
    assert doubted(tuned=[search("a", (0.01, "done", 3.11), (0.1, "done", 3.5), (0.001, "pruned", 4.4))]) == []


def test_compared_cells_that_have_learnt_nothing_are_told_in_one_sentence(doubted: Callable[..., list[Flag]]):
    (flag,) = doubted(a=[5.0, 5.01, 5.02], b=[4.99, 5.0, 4.98])
    assert (flag.kind, flag.level, flag.variant, flag.size) == ("floor", "serious", None, "pico")
    assert flag.sentence == (
        "a (5.01) and b (4.99) have learnt nothing: on val_loss not under the unigram floor of 5 nats by more than the "
        "margin of 0.02; how far they lie over another says only how well that one learnt"
    )
    (one,) = doubted(b=[5.0, 5.01, None])
    assert (one.variant, "b (5) has learnt nothing" in one.sentence) == ("b", True)
    assert doubted(baseline=[5.0, 5.0, 5.0], a=[5.0, 5.01, 5.02]) == [], "that no baseline has learnt is told by its gate"


@pytest.mark.parametrize(("loss", "level"), [(3.05, "serious"), (3.09, "note"), (3.11, None), (None, None)])
def test_a_pruned_trial_that_would_have_been_chosen_is_told(
    doubted: Callable[..., list[Flag]], loss: float | None, level: str | None
):
    """The margin is 0.02, and the chosen trial has 3.1."""
    searched = search("a", (0.01, "done", 3.10), (0.1, "done", 3.5), (0.002, "pruned", 4.4))
    assert doubted(tuned=[searched]) == []
    searched["trials"][-1]["in_full"] = {"loss": loss}
    found = doubted(tuned=[searched])
    assert [(flag.kind, flag.level, flag.variant) for flag in found] == ([("pruned", level, "a")] if level else [])
    if level == "serious":
        assert found[0].sentence == (
            "the search of a pruned learning_rate 0.002, which is 0.05 nats better than what it chose when trained on"
        )


def test_a_search_in_which_nothing_makes_a_difference_says_so(doubted: Callable[..., list[Flag]]):
    flat = [(0.01, "done", 5.29), (0.1, "done", 5.295), (0.001, "pruned", 5.301)]
    (flag,) = doubted(a=[5.0, 5.01, 5.02], tuned=[search("b", *flat)])[1:]
    assert (flag.kind, flag.level, flag.variant) == ("flat", "note", "b")
    assert flag.sentence == (
        "the learning_rate of b makes no difference that was measured, for all trials lie within 0.02 nats; "
        "the one it got is a coin's"
    )
    (both,) = doubted(tuned=[search(name, *flat) for name in ("a", "b")])
    assert "the learning_rate of a and b makes no difference" in both.sentence
    assert "the one each got is a coin's" in both.sentence
    for other in ((0.5, "pruned", 5.33), (0.5, "diverged", 0.0), (0.5, "done", 5.32)):
        assert [one.kind for one in doubted(tuned=[search("b", *flat, other)]) if one.kind == "flat"] == []


def test_a_winner_that_its_judged_seeds_do_not_bear_out_won_by_luck(doubted: Callable[..., list[Flag]]):
    """The bound by hand: t(0.995, 2) = 9.925, sd 0.01, sqrt(1 + 1/3): 0.1146."""
    (flag,) = doubted(tuned=[search("b", (0.01, "done", 3.09), (0.1, "done", 3.5))])
    assert (flag.kind, flag.level, flag.variant) == ("luck", "serious", "b")
    assert flag.sentence == (
        "the learning_rate 0.01 of b won its search by luck, or it is unstable: its trial reached 3.09, its 3 judged seeds "
        "3.21 on average, 0.12 nats more, where chance allows 0.115"
    )
    assert doubted(tuned=[search("b", (0.01, "done", 3.10), (0.1, "done", 3.5))]) == []
    (worse,) = doubted(tuned=[search("b", (0.01, "done", 3.05), (0.002, "done", 3.15))])
    assert worse.sentence.endswith("; the rejected trial at learning_rate 0.002 reached 3.15, less than that mean")
    narrower = [search("b", (0.01, "done", 3.12), (0.1, "done", 3.5), seeds=4)]  # 9.925 * 0.01 * sqrt(1/4 + 1/3) = 0.0758
    assert [flag.level for flag in doubted(tuned=narrower)] == ["serious"]


def test_a_rejected_trial_that_is_better_than_the_judged_mean_is_told(doubted: Callable[..., list[Flag]]):
    judged = [3.9, 4.0, 4.1]
    (flag,) = doubted(b=judged, tuned=[search("b", (0.0162, "done", 3.8), (0.0054, "done", 3.93), (0.002, "pruned", 3.9))])
    assert (flag.kind, flag.level) == ("luck", "note")
    assert flag.sentence == (
        "the learning_rate 0.0162 of b may have won its search by luck: its trial reached 3.8, its 3 judged seeds 4 on "
        "average; the rejected trial at learning_rate 0.0054 reached 3.93, 0.07 nats less"
    )
    assert doubted(b=judged, tuned=[search("b", (0.0162, "done", 3.8), (0.0054, "done", 3.99))]) == [], "within the margin"


def test_the_seed_that_lies_far_off_is_named(doubted: Callable[..., list[Flag]]):
    (flag,) = doubted(b=[3.525, 3.503, 3.537, 3.907, 3.470])
    assert (flag.kind, flag.level, flag.variant) == ("outlier", "note", "b")
    mean, values = 3.5884, np.array([3.525, 3.503, 3.537, 3.907, 3.470])
    assert f"Grubbs' G = {(3.907 - mean) / values.std(ddof=1):.3f}, over 1.764" in flag.sentence
    assert flag.sentence.startswith("seed 3 of b lies 0.398 nats over the mean of its other 4 seeds on val_loss")
    assert "nothing is removed" in flag.sentence
    (under,) = doubted(b=[3.5, 3.5, 3.1, 3.51, None, 3.49, 3.5])
    assert under.sentence.startswith("seed 2 of b lies 0.4 nats under the mean of its other 5 seeds")


def test_every_size_has_doubts_of_its_own(tmp_path: Path, cell: MakeCell):
    path = tmp_path / "study.yaml"
    path.write_text(STUDY.replace("size: pico", "sizes: [pico, nano]"))
    records = [
        run
        for size, losses in (("pico", [5.0, 5.01, 5.02]), ("nano", [3.1, 3.11, 3.12]))
        for name, values in (("baseline", [3.0, 3.01, 3.02]), ("a", [3.1, 3.11, 3.12]), ("b", losses))
        for run in cell(name, values, size=size)
    ]
    (flag,) = doubts(plan_study(load_study(path)), records=records, floors={"pico": FLOORS, "nano": FLOORS})
    assert (flag.size, flag.sentence.startswith("b at pico (5.01) has learnt nothing")) == ("pico", True)
