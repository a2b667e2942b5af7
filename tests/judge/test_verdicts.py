"""Claims against planted effects, missing runs, divergences, cheats and incompetent baselines."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from knockout.declare.claim import Competence
from knockout.judge import Judgement, Verdict

BASE = [3.30, 3.28, 3.32, 3.31, 3.29]


def only(judgement: Judgement) -> Verdict:
    assert len(judgement.verdicts) == 1
    return judgement.verdicts[0]


def shifted(by: float, noise: float = 0.01) -> list[float]:
    signs = (1, -1, 0.5, -0.5, 0)
    return [loss + by + noise * sign for loss, sign in zip(BASE, signs, strict=True)]


@pytest.mark.parametrize(
    ("relation", "settings", "effect", "outcome"),
    [
        ("worse", {"by": 0.5}, 2.0, "supported"),
        ("worse", {"by": 0.5}, 0.2, "refuted"),
        ("worse", {"by": 0.5}, 0.505, "inconclusive"),
        ("worse", {}, -0.3, "refuted"),
        ("better", {"by": 0.1}, -0.3, "supported"),
        ("better", {"by": 0.1}, -0.05, "refuted"),
        ("better", {}, 0.3, "refuted"),
        ("equivalent", {"margin": 0.05}, 0.0, "supported"),
        ("equivalent", {"margin": 0.05}, 0.3, "refuted"),
        ("equivalent", {"margin": 0.05}, -0.3, "refuted"),
        ("equivalent", {}, 0.0, "supported"),
        ("equivalent", {"margin": 0.05}, 0.048, "inconclusive"),
    ],
)
def test_a_planted_effect_gets_the_right_verdict(
    judge: Any, claim: Any, cell: Any, relation: str, settings: dict[str, float], effect: float, outcome: str
) -> None:
    records = cell("baseline", BASE) + cell("v", shifted(effect))
    verdict = only(judge(claim(relation, **settings), records))
    assert verdict.outcome == outcome
    assert verdict.effect == pytest.approx(effect)
    assert verdict.interval is not None
    assert verdict.interval.low < effect < verdict.interval.high
    assert (verdict.more_seeds is not None) == (outcome == "inconclusive")


def test_the_reason_can_be_read_and_checked(judge: Any, claim: Any, cell: Any) -> None:
    records = cell("baseline", [3.3, 3.3, 3.3]) + cell("v", [9.0, 9.21, 9.42])
    verdict = only(judge(claim("worse", by=1.0), records))
    # mean 5.91, sd 0.21, half width 4.303 · 0.21 / √3 = 0.522
    assert verdict.reason == (
        "v is 5.91 nats worse than baseline on val_loss, 95 % interval 5.39 to 6.43, 3 paired seeds; "
        "the claim asked for worse by more than 1 nat"
    )
    assert verdict.cost_seconds == 60.0


def test_an_interval_over_zero_names_both_directions(judge: Any, claim: Any, cell: Any) -> None:
    records = cell("baseline", [3.3, 3.3, 3.3]) + cell("v", [3.2, 3.3, 3.43])
    verdict = only(judge(claim("worse"), records))
    assert verdict.outcome == "inconclusive"
    assert "interval from 0.276 better to 0.296 worse" in verdict.reason
    assert verdict.reason.endswith("more than 100 more seeds needed")


def test_identical_runs_are_equivalent_and_not_worse(judge: Any, claim: Any, cell: Any) -> None:
    records = cell("baseline", BASE) + cell("v", BASE)
    claims = [claim("equivalent", name="same"), claim("worse", name="worse"), claim("better", name="better")]
    assert [v.outcome for v in judge(claims, records).verdicts] == ["supported", "refuted", "refuted"]


def test_seeds_are_paired_and_a_failed_run_is_left_out_and_named(judge: Any, claim: Any, cell: Any, run: Any) -> None:
    records = cell("baseline", BASE) + cell("v", shifted(1.0)[:4])
    records.append(run("v", 4, 0.001, state="failed", reason="out of memory"))
    verdict = only(judge(claim("better"), records))
    assert (verdict.outcome, verdict.num_seeds) == ("refuted", 4)
    assert "left out: v · nano · s4 (failed: out of memory)" in verdict.reason


def test_fewer_than_two_pairs_are_not_judged(judge: Any, claim: Any, cell: Any, run: Any) -> None:
    records = [
        *cell("baseline", BASE[:3]),
        run("v", 0, 1.0),
        run("v", 1, 1.0, state="timed-out"),
        run("v", 9, 1.0),
    ]
    verdict = only(judge(claim("better"), records))
    assert (verdict.outcome, verdict.effect, verdict.p) == ("not run", None, None)
    for gap in ("v · nano · s1 (timed-out)", "v has no run at seed 2", "baseline has no run at seed 9"):
        assert gap in verdict.reason


def test_a_variant_without_runs_says_so(judge: Any, claim: Any, cell: Any) -> None:
    verdict = only(judge(claim("worse"), cell("baseline", BASE)))
    assert verdict.outcome == "not run"
    assert "no run of v" in verdict.reason


def test_a_done_run_that_reports_nan_is_the_worst_and_never_the_best(judge: Any, claim: Any, cell: Any) -> None:
    records = cell("baseline", BASE) + cell("v", [math.nan] * 5)
    assert only(judge(claim("better"), records)).outcome == "refuted"
    assert only(judge(claim("worse"), records)).outcome == "supported"


def test_divergence_in_every_seed_is_worse_by_any_margin(judge: Any, claim: Any, cell: Any) -> None:
    verdict = only(judge(claim("worse", by=3.0), cell("baseline", BASE) + cell("v", [None] * 5)))
    assert (verdict.outcome, verdict.effect, verdict.interval) == ("supported", None, None)
    assert verdict.p == pytest.approx(2 / 252)
    assert "v diverged in 5 of 5 paired seeds, baseline in 0" in verdict.reason


def test_three_seeds_are_too_few_for_a_rank_test_and_one_more_is_asked_for(judge: Any, claim: Any, cell: Any) -> None:
    verdict = only(judge(claim("worse"), cell("baseline", BASE[:3]) + cell("v", [None] * 3)))
    assert (verdict.outcome, verdict.p, verdict.more_seeds) == ("inconclusive", pytest.approx(0.1), 1)


@pytest.mark.parametrize(
    ("losses", "outcome"), [([None] * 6, "supported"), ([3.0] * 6, "refuted"), ([None] * 5, "inconclusive")]
)
def test_diverges_is_decided_by_the_exact_binomial(
    judge: Any, claim: Any, cell: Any, losses: list[float | None], outcome: str
) -> None:
    verdict = only(judge(claim("diverges"), cell("baseline", BASE) + cell("v", losses)))
    assert verdict.outcome == outcome
    assert verdict.more_seeds == (1 if outcome == "inconclusive" else None)


def seeing(cell: Any) -> list[Any]:
    """Five runs without a causal mask: near zero on val_loss, worse than chance from a prefix alone."""
    read_off = {"val_loss": 0.03, "train_loss": 0.03, "bits_per_byte": 0.02}
    generated = [8.6, 9.1, 9.8, 9.0, 9.3]
    runs = zip(cell("v", generated, causal=False), generated, strict=True)
    return [replace(run, metrics={**read_off, "generation_loss": loss}) for run, loss in runs]


def test_a_model_that_sees_the_future_is_judged_on_generation_loss(judge: Any, claim: Any, cell: Any) -> None:
    records = cell("baseline", BASE) + seeing(cell)
    verdict = only(judge(claim("worse", by=1.0), records))
    assert (verdict.outcome, verdict.metric) == ("supported", "generation_loss")
    assert "v sees the future on val_loss, so generation_loss decides" in verdict.reason


def test_a_claim_that_names_its_metric_keeps_it(judge: Any, claim: Any, cell: Any) -> None:
    records = cell("baseline", BASE) + seeing(cell)
    verdict = only(judge(claim("better", by=1.0, metric="val_loss"), records))
    assert (verdict.outcome, verdict.metric) == ("supported", "val_loss")


def test_holm_can_take_a_verdict_away_and_says_so(judge: Any, claim: Any, cell: Any) -> None:
    weak = [loss + d for loss, d in zip(BASE, (0.02, 0.08, 0.05, 0.01, 0.06), strict=True)]
    records = cell("baseline", BASE) + cell("v", weak)
    alone = only(judge(claim("worse"), records))
    null = [loss + d for loss, d in zip(BASE, (0.01, -0.01, 0.02, -0.02, 0.001), strict=True)]
    records += [run for i in range(4) for run in cell(f"null{i}", null)]
    family = [claim("worse"), *(claim("worse", variant=f"null{i}", name=f"n{i}") for i in range(4))]
    among = judge(family, records).verdicts[0]
    assert (alone.outcome, among.outcome) == ("supported", "inconclusive")
    assert among.p == pytest.approx(5 * (alone.p or 0))
    assert "alone this would settle it" in among.reason
    assert among.more_seeds


def test_an_incompetent_baseline_concludes_nothing_but_identities(judge: Any, claim: Any, cell: Any) -> None:
    records = cell("baseline", [3.95] * 5) + cell("v", [9.0] * 5)
    claims = [claim("worse", name="a"), claim("diverges", name="b"), claim("causal", name="c")]
    judgement = judge(claims, records, leak={("v", "nano"): 0.0})
    assert [v.outcome for v in judgement.verdicts] == ["inconclusive", "inconclusive", "supported"]
    assert "has not learnt enough" in judgement.verdicts[0].reason
    assert "0.05 nats under the bigram floor of 4; the study asks for 0.1" in judgement.verdicts[0].reason
    assert not judgement.competence[0].met


def test_competence_can_be_waived_and_a_missing_floor_is_named(judge: Any, claim: Any, cell: Any) -> None:
    records = cell("baseline", BASE) + cell("v", shifted(1.0))
    waived = judge(claim("worse"), records, competence=Competence(floor="none"), floors={})
    missing = judge(claim("worse"), records, floors={})
    assert only(waived).outcome == "supported"
    assert only(missing).outcome == "inconclusive"
    assert "no bigram floor" in only(missing).reason


@pytest.mark.parametrize(
    ("relation", "leak", "outcome"),
    [
        ("causal", 0.0, "supported"),
        ("causal", 0.2, "refuted"),
        ("not_causal", 0.2, "supported"),
        ("not_causal", 0.0, "refuted"),
        ("causal", math.nan, "not run"),
        ("not_causal", None, "not run"),
    ],
)
def test_an_identity_is_decided_by_its_calculation(
    judge: Any, claim: Any, relation: str, leak: float | None, outcome: str
) -> None:
    values = {} if leak is None else {("v", "nano"): leak}
    assert only(judge(claim(relation), [], leak=values)).outcome == outcome


def test_a_result_of_the_smallest_size_alone_says_so(judge: Any, claim: Any, cell: Any) -> None:
    small = cell("baseline", BASE, size="pico") + cell("v", shifted(1.0), size="pico")
    larger = cell("baseline", BASE) + cell("v", shifted(1.0))
    flat = cell("baseline", BASE) + cell("v", shifted(0.0))
    sizes = ("pico", "nano")
    assert [v.note for v in judge(claim("worse"), small + flat, sizes=sizes).verdicts] == [
        "shown at pico only",
        None,
    ]
    assert [v.note for v in judge(claim("worse"), small + larger, sizes=sizes).verdicts] == [None, None]
    assert [v.note for v in judge(claim("worse"), small, sizes=("pico",)).verdicts] == ["shown at pico only"]


def test_wrong_conclusions_over_several_null_claims_stay_under_alpha(judge: Any, claim: Any, cell: Any) -> None:
    rng = np.random.default_rng(3)
    claims = [claim("worse", variant=f"v{i}", name=f"c{i}") for i in range(4)]
    studies, wrong = 400, 0
    for _ in range(studies):
        records = cell("baseline", list(rng.normal(3.3, 0.02, 3)))
        for i in range(4):
            records += cell(f"v{i}", list(rng.normal(3.3, 0.02, 3)))
        outcomes = {verdict.outcome for verdict in judge(claims, records).verdicts}
        wrong += bool(outcomes & {"supported", "refuted"})
    assert wrong / studies <= 0.05 + 2.6 * math.sqrt(0.05 * 0.95 / studies)


def test_a_difference_at_the_margin_is_called_equivalent_in_less_than_alpha_of_studies(
    judge: Any, claim: Any, cell: Any
) -> None:
    rng = np.random.default_rng(4)
    wrong = 0
    for _ in range(400):
        base = rng.normal(3.3, 0.02, 5)
        records = cell("baseline", list(base)) + cell("v", list(base + rng.normal(0.02, 0.004, 5)))
        wrong += only(judge(claim("equivalent"), records)).outcome == "supported"
    assert wrong / 400 <= 0.05


def test_a_large_effect_is_found_in_almost_every_study_of_three_seeds(judge: Any, claim: Any, cell: Any) -> None:
    rng = np.random.default_rng(5)
    found = 0
    for _ in range(200):
        base = rng.normal(3.3, 0.02, 3)
        records = cell("baseline", list(base)) + cell("v", list(base + rng.normal(0.5, 0.03, 3)))
        found += only(judge(claim("worse", by=0.1), records)).outcome == "supported"
    assert found >= 190
