"""Cells that have learnt nothing: what stands with them, and what they cannot show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from knockout.declare.claim import Claim, Competence
from knockout.declare.load import load_study
from knockout.judge import Judgement, RunRecord, Verdict
from knockout.judge.floors import Unlearnt, unlearnt
from knockout.submission.concluding import open_variants

MakeCell = Callable[..., list[RunRecord]]
Judge = Callable[..., Judgement]
NOISE = np.array([-0.004, 0.001, 0.005, -0.002])
"""Of every cell but by its own share, so that differences have some spread."""
WHY = "more tokens or another budget would decide it"


@pytest.fixture
def verdict(judge: Judge, cell: MakeCell) -> Callable[..., Verdict]:
    """The verdict on a claim over cells with these means; the unigram floor is 5.0, the margin 0.02."""

    def make(expect: dict[str, Any], /, **means: float) -> Verdict:
        claim = Claim.model_validate({"id": "T", "says": "it", "expect": expect})
        means = {"baseline": 3.0, **means}
        records = [
            run
            for place, (name, mean) in enumerate(means.items())
            for run in cell(name, list(mean + np.roll(NOISE, place) * (1 + place)))
        ]
        (found,) = judge([claim], records).verdicts
        return found

    return make


def interaction(**ends: Any) -> dict[str, Any]:
    return {
        "is": "interaction",
        "variant": "deep-cut",
        "than": "deep",
        "over": {"variant": "cut", "than": "baseline"},
        **ends,
    }


def test_an_interaction_of_two_sides_at_the_floor_says_only_how_well_the_others_learnt(verdict: Callable[..., Verdict]):
    found = verdict(interaction(), **{"deep-cut": 5.01, "deep": 3.4, "cut": 5.0})
    assert found.effect == pytest.approx(-0.39)
    assert found.interval is not None
    assert found.interval.high < -0.3, "measured clearly enough"
    assert (found.outcome, found.more_seeds, found.p) == ("inconclusive", None, 1.0)
    assert "deep-cut and cut are no better than the unigram floor" in found.reason
    assert "says only how well the others learnt" in found.reason
    assert found.reason.endswith(WHY)
    larger = verdict(interaction(), **{"deep-cut": 5.01, "deep": 2.5, "cut": 5.0})
    assert (larger.outcome, larger.effect) == ("inconclusive", pytest.approx(0.51))


def test_a_gap_that_ends_at_the_floor_is_at_least_so_large(verdict: Callable[..., Verdict]):
    """As measured: 1.6 against 1.9, and 1.6 against 0.5. The first gap could be larger, had its variant not stopped at the
    floor, and so may be larger than 1.9 too; that it is larger than 0.5 is sure."""
    assert verdict(interaction(), **{"deep-cut": 5.0, "deep": 3.4, "cut": 4.9}).outcome == "inconclusive"
    assert verdict(interaction(), **{"deep-cut": 5.0, "deep": 3.4, "cut": 3.5}).outcome == "supported"
    assert verdict(interaction(), **{"deep-cut": 3.6, "deep": 3.4, "cut": 5.0}).outcome == "refuted"
    assert verdict(interaction(), **{"deep-cut": 4.9, "deep": 2.9, "cut": 5.0}).outcome == "inconclusive"


def test_a_change_that_is_held_against_its_own_floor_has_no_gap(verdict: Callable[..., Verdict]):
    found = verdict(interaction(), **{"deep-cut": 5.0, "deep": 5.01, "cut": 3.5})
    assert (found.outcome, WHY in found.reason) == ("inconclusive", True)


def test_a_cell_on_both_sides_of_an_interaction_cancels_and_limits_nothing(verdict: Callable[..., Verdict]):
    shared = {"is": "interaction", "variant": "cut", "than": "baseline", "over": {"variant": "cut", "than": "deep"}}
    assert verdict(shared, cut=5.0, deep=3.4).outcome == "supported"


@pytest.mark.parametrize(
    ("expect", "v", "w", "outcome"),
    [
        ({"is": "worse"}, 5.0, 3.4, "supported"),
        ({"is": "worse", "by": 0.5}, 5.2, 3.4, "supported"),
        ({"is": "better"}, 5.0, 3.4, "refuted"),
        ({"is": "worse", "by": 2.0}, 5.0, 3.4, "inconclusive"),
        ({"is": "worse", "by": 2.0}, 4.9, 3.4, "refuted"),
        ({"is": "better"}, 3.4, 5.0, "supported"),
        ({"is": "better", "by": 2.0}, 3.4, 5.0, "inconclusive"),
        ({"is": "worse"}, 5.2, 5.0, "inconclusive"),
        ({"is": "better"}, 5.0, 5.2, "inconclusive"),
        ({"is": "equivalent"}, 5.0, 5.0, "inconclusive"),
        ({"is": "equivalent"}, 5.2, 5.0, "inconclusive"),
        ({"is": "equivalent"}, 5.0, 3.4, "refuted"),
        ({"is": "equivalent", "margin": 2.0}, 5.0, 3.4, "inconclusive"),
        ({"is": "ratio", "between": [1.2, None]}, 5.0, 3.4, "supported"),
        ({"is": "ratio", "between": [1.2, 1.6]}, 5.0, 3.4, "inconclusive"),
        ({"is": "ratio", "between": [1.2, 1.6]}, 4.9, 3.4, "supported"),
        ({"is": "ratio", "between": [None, 1.2]}, 5.0, 3.4, "refuted"),
    ],
)
def test_worse_by_what_has_learnt_nothing_stands_and_by_no_more_does_not(
    expect: dict[str, Any], v: float, w: float, outcome: str, verdict: Callable[..., Verdict]
):
    found = verdict({"variant": "v", "than": "w", **expect}, v=v, w=w)
    assert found.outcome == outcome
    assert (WHY in found.reason) == (outcome == "inconclusive")


@pytest.mark.parametrize(
    ("a", "b", "c", "outcome"),
    [
        (4.5, 4.0, 3.5, "supported"),
        (5.0, 4.0, 3.5, "supported"),
        (5.3, 5.0, 3.5, "inconclusive"),
        (5.0, 5.3, 3.5, "inconclusive"),
        (5.0, 5.3, 5.6, "inconclusive"),
        (5.3, 5.0, 3.0, "inconclusive"),
        (3.4, 5.0, 5.3, "refuted"),
        (4.0, 4.5, 5.0, "refuted"),
    ],
)
def test_an_order_rests_on_no_step_between_two_cells_at_the_floor(
    a: float, b: float, c: float, outcome: str, verdict: Callable[..., Verdict]
):
    found = verdict({"is": "order", "along": ["a", "b", "c"], "direction": "falls"}, a=a, b=b, c=c)
    assert (found.outcome, WHY in found.reason) == (outcome, outcome == "inconclusive")


@pytest.mark.parametrize(
    ("losses", "within", "outcome"),
    [
        ((4.5, 4.0, 4.1), [2, 2], "supported"),
        ((5.0, 4.0, 4.1), [2, 2], "supported"),
        ((5.0, 5.0, 3.0), [1, 1], "inconclusive"),
        ((5.2, 5.0, 5.0), [2, 2], "inconclusive"),
        ((5.0, 4.0, 4.1), [1, 1], "refuted"),
    ],
)
def test_a_knee_is_not_found_among_cells_at_the_floor(
    losses: Sequence[float], within: list[int], outcome: str, verdict: Callable[..., Verdict]
):
    along = {"1": "a", "2": "b", "4": "c"}
    found = verdict({"is": "knee", "along": along, "within": within}, **dict(zip("abc", losses, strict=True)))
    assert (found.outcome, WHY in found.reason) == (outcome, outcome == "inconclusive")


@pytest.mark.parametrize(
    ("cut", "outcome"),
    [
        ((3.1, 5.0), "supported"),  # it fails at 2, whatever its loss there would be
        ((5.0, 5.0), "refuted"),  # it fails at 1 already
        ((3.1, 3.2), "refuted"),
    ],
)
def test_a_threshold_that_is_crossed_at_the_floor_is_crossed(
    cut: tuple[float, float], outcome: str, verdict: Callable[..., Verdict]
):
    along = {"1": {"variant": "a-cut"}, "2": {"variant": "b-cut"}}
    expect = {"is": "threshold", "along": along, "by": 0.5, "within": [2, 2]}
    assert verdict(expect, **{"a-cut": cut[0], "b-cut": cut[1]}).outcome == outcome


def test_a_trend_among_gaps_that_end_at_the_floor_is_not_shown(judge: Judge, cell: MakeCell):
    sizes, claim = ["s", "m"], Claim.model_validate(
        {"id": "T", "says": "it", "expect": {"is": "trend", "variant": "v", "direction": "shrinks"}}
    )  # fmt: skip

    def outcome(small: float, large: float) -> str:
        means = {("baseline", "s"): 3.0, ("baseline", "m"): 3.5, ("v", "s"): small, ("v", "m"): large}
        records = [
            run
            for place, ((name, size), mean) in enumerate(means.items())
            for run in cell(
                name, list(mean + np.roll(NOISE, place)), size=size, parameters={"total": 10 * sizes.index(size) + 10}
            )
        ]
        return judge([claim], records, sizes=sizes).verdicts[0].outcome

    assert outcome(4.6, 4.5) == "supported"
    assert outcome(5.0, 4.5) == "supported"  # where the gap is larger yet, it shrinks all the more
    assert outcome(5.0, 5.0) == outcome(4.6, 5.0) == "inconclusive"


def test_what_is_concluded_stands_with_any_larger_loss_in_the_place_of_one_at_the_floor(judge: Judge, cell: MakeCell):
    """The rule itself, on random studies: cells at the floor are made worse by any amount, and no conclusion changes."""
    random = np.random.default_rng(4)
    pair = {"variant": "v", "than": "w"}
    shapes = [
        {"is": "worse", **pair, "by": 0.3},
        {"is": "better", **pair},
        {"is": "equivalent", **pair, "margin": 0.3},
        {"is": "ratio", **pair, "between": [0.9, 1.1]},
        {"is": "interaction", **pair, "over": {"variant": "x", "than": "y"}},
        {"is": "order", "along": ["v", "w", "x", "y"], "direction": "falls"},
        {"is": "knee", "along": {"1": "v", "2": "w", "4": "x", "8": "y"}, "within": [2, 4]},
        {"is": "threshold", "along": {"1": pair, "2": {"variant": "x", "than": "y"}}, "by": 0.3, "within": [2, None]},
    ]
    claims = [Claim.model_validate({"id": f"T{i}", "says": "it", "expect": shape}) for i, shape in enumerate(shapes)]
    concluded = 0
    for _ in range(40):
        losses = {name: random.choice([3.5, 4.3, 4.9, 5.0, 5.1]) + random.normal(0, 0.01, 4) for name in "vwxy"}
        records = [run for name, values in losses.items() for run in cell(name, list(values))]
        at_floor = {
            name
            for name, _ in unlearnt(
                [(name, "nano") for name in losses], records=records, floors={"nano": {"unigram": 5.0}}, margin=0.02
            )
        }
        raised = {name: values + random.exponential(1.0) * (name in at_floor) for name, values in losses.items()}
        others = [run for name, values in raised.items() for run in cell(name, list(values))]
        for claim in claims:  # one by one, since Holm's correction looks at all of them
            first, then = (judge(claim, runs, competence=Competence(floor="none")).verdicts[0] for runs in (records, others))
            if first.outcome != "inconclusive":
                concluded += 1
                assert then.outcome == first.outcome, (claim.expect, losses, raised)
    assert concluded > 60


def test_the_floor_is_reached_within_the_margin_by_what_has_finished(cell: MakeCell):
    records = [
        *cell("under", [4.97, 4.98]),
        *cell("at", [4.98, 4.99]),
        *cell("over", [6.0, None]),
        *cell("gone", [None, None]),
        *cell("seeing", [0.03, 0.04], causal=False),
    ]

    def found(**floors: float) -> dict[tuple[str, str], Unlearnt]:
        cells = [(name, "nano") for name in ("under", "at", "over", "gone", "seeing", "never run")]
        return unlearnt(cells, records=records, floors={"nano": floors}, margin=0.02)

    at_floor = found(unigram=5.0)
    assert list(at_floor) == [("at", "nano"), ("over", "nano")]
    assert at_floor["at", "nano"].loss == pytest.approx(4.985)
    assert found(bigram=4.0) == {}
    assert found(unigram=5.0, entropy_rate=4.99) == {}, "there is nothing to learn"


def test_what_training_costs_has_no_floor(judge: Judge, cell: MakeCell):
    claim = Claim.model_validate(
        {"id": "T", "says": "it", "expect": {"is": "higher", "variant": "v", "metric": "tokens_per_second"}}
    )
    records = [
        *cell("baseline", [5.0] * 3, metrics={"val_loss": 5.0, "tokens_per_second": 10.0}),
        *cell("v", [5.0] * 3, metrics={"val_loss": 5.0, "tokens_per_second": 20.0}),
    ]
    assert judge(claim, records).verdicts[0].outcome == "supported"


def test_more_seeds_are_no_help_to_what_has_learnt_nothing(judge: Judge, cell: MakeCell, tmp_path: Path):
    path = tmp_path / "study.yaml"
    path.write_text(
        "study: s\nquestion: q\ncorpus: python-source\nsize: pico\n"
        "variants: {v: {norm: {kind: rms}}, w: {ffn: {kind: none}}}\n"
        "claims:\n- {id: A, says: it, expect: {variant: v, is: equivalent, to: w}}\n"
        "- {id: B, says: it, expect: {variant: v, is: worse, by: 2.5}}\n"
    )
    study = load_study(path).study
    assert study is not None
    records = [*cell("baseline", [3.0, 3.1, 2.9]), *cell("v", [5.0, 5.1, 5.2]), *cell("w", [5.1, 5.0, 5.1])]
    found = judge(study.claims, records)
    assert [(v.outcome, v.unlearnt) for v in found.verdicts] == [("inconclusive", True)] * 2
    assert open_variants(study, judgement=found) == frozenset()
    noisy = judge(
        study.claims, [*cell("baseline", [3.0, 3.1, 2.9]), *cell("v", [4.0, 4.6, 5.2]), *cell("w", [4.5, 4.7, 4.0])]
    )
    assert open_variants(study, judgement=noisy) == {"v", "w", "baseline"}
