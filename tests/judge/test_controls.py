"""Controls fail as often as chance says when nothing is wrong, and when something is; noise is what the text books say."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import pearsonr

from knockout.judge import RunRecord
from knockout.judge.controls import aa_control, shuffled_control
from knockout.judge.learning import tokens_needed
from knockout.judge.noise import noise_at
from knockout.judge.statistics.looks import spend

MakeCell = Callable[..., list[RunRecord]]


def test_the_baseline_against_itself_fails_in_a_share_alpha_of_sound_studies(cell: MakeCell):
    random = np.random.default_rng(0)
    studies, alpha = 2000, 0.05
    failed = sum(
        not aa_control(
            "nano",
            judged=cell("baseline", random.normal(4.0, 0.02, 4).tolist()),
            again=cell("baseline again", random.normal(4.0, 0.02, 4).tolist()),
            metric="val_loss",
            alpha=alpha,
        ).passed
        for _ in range(studies)
    )
    assert abs(failed / studies - alpha) < 4 * math.sqrt(alpha * (1 - alpha) / studies)


def test_a_baseline_that_changed_between_its_runs_is_seen(cell: MakeCell):
    found = aa_control(
        "nano",
        judged=cell("baseline", [4.0, 4.01, 3.99]),
        again=cell("baseline again", [4.2, 4.21, 4.19]),
        metric="val_loss",
        alpha=0.05,
    )
    assert found.passed is False
    assert found.effect == pytest.approx(0.2)
    assert "differs more than chance allows" in found.sentence
    assert found.p is not None
    assert found.sentence.endswith(f"; chance alone gives a difference as large in {100 * found.p:.2g} % of sound studies")


def test_a_baseline_that_sees_the_future_is_held_against_itself_on_generation_loss(cell: MakeCell):
    def seeing(variant: str) -> list[RunRecord]:
        metrics = [{"val_loss": 0.01, "generation_loss": 9.0 + seed} for seed in range(3)]
        return [
            RunRecord(**{**vars(run), "metrics": m, "causal": False})
            for run, m in zip(cell(variant, [0.0] * 3), metrics, strict=True)
        ]

    found = aa_control("nano", judged=seeing("baseline"), again=seeing("baseline again"), metric="val_loss", alpha=0.05)
    assert found.passed
    assert found.effect == 0.0


def test_divergences_are_compared_by_rank_and_missing_runs_leave_no_control(cell: MakeCell):
    first, second = cell("baseline", [4.0, 4.1, 4.2, 4.05]), cell("baseline again", [None, None, None, None])
    found = aa_control("nano", judged=first, again=second, metric="val_loss", alpha=0.05)
    assert (found.passed, found.effect, found.interval) == (False, None, None)  # p = 2 / C(8, 4) = 0.029
    assert found.p == pytest.approx(2 / 70)
    alone = aa_control("nano", judged=first, again=second[:1], metric="val_loss", alpha=0.05)
    assert alone.passed is None
    assert "1 pair of runs" in alone.sentence


def test_shuffled_tokens_teach_no_more_than_their_frequencies(cell: MakeCell):
    floors = {"unigram": 5.0}
    sound, leaking = (shuffled_control("nano", runs=cell("shuffled", [loss]), floors=floors) for loss in (5.02, 4.7))
    assert (sound.passed, leaking.passed) == (True, False)
    assert "leaks" in leaking.sentence
    assert shuffled_control("nano", runs=[], floors=floors).passed is None
    assert shuffled_control("nano", runs=cell("shuffled", [None]), floors=floors).passed is None


def test_noise_is_pooled_over_cells_and_pairing_takes_its_share_off(cell: MakeCell):
    a, b = [4.0, 4.1, 4.2, 4.1], [3.0, 3.12, 3.19, 3.1]
    found = noise_at(
        "nano",
        records=[*cell("baseline", a), *cell("v", b), *cell("lone", [5.0])],
        metric="val_loss",
        compared=[("v", "baseline", "val_loss"), ("lone", "baseline", "val_loss")],
    )
    assert [noise.variant for noise in found.cells] == ["baseline", "v"]
    assert found.pooled_sd == pytest.approx(math.sqrt((np.var(a, ddof=1) + np.var(b, ddof=1)) / 2))
    assert found.degrees == 6
    (pair,) = found.pairs
    assert pair.correlation == pytest.approx(pearsonr(a, b).statistic)
    assert pair.sd_paired == pytest.approx(np.std(np.subtract(b, a), ddof=1))
    # The variance of a difference: sd_a² + sd_b² - 2 r sd_a sd_b.
    shared = 2 * pair.correlation * found.cells[0].sd * found.cells[1].sd
    assert pair.sd_paired**2 == pytest.approx(pair.sd_unpaired**2 - shared)


def test_a_cell_that_sees_the_future_is_not_pooled_with_those_that_do_not(cell: MakeCell):
    seeing = [
        RunRecord(**{**vars(run), "metrics": {"val_loss": 0.01, "generation_loss": 9.0 + run.seed}, "causal": False})
        for run in cell("v", [0.0] * 3)
    ]
    baseline = cell("baseline", [4.0, 4.1, 4.2])
    baseline = [RunRecord(**{**vars(run), "metrics": {**run.metrics, "generation_loss": 3.0}}) for run in baseline]
    records = [*baseline, *seeing]
    found = noise_at("nano", records=records, metric="val_loss", compared=[("v", "baseline", "val_loss")])
    assert [noise.variant for noise in found.cells] == ["baseline"]
    assert found.pooled_sd == pytest.approx(0.1)
    assert found.pairs[0].metric == "generation_loss"
    assert found.pairs[0].sd_unpaired == pytest.approx(1.0)


def test_a_divergence_is_no_noise_and_equal_values_have_no_correlation(cell: MakeCell):
    records = [*cell("baseline", [4.0, 4.0, 4.0]), *cell("v", [3.0, None, 3.2])]
    found = noise_at("nano", records=records, metric="val_loss", compared=[("v", "baseline", "val_loss")])
    assert found.pairs[0].num_pairs == 2
    assert found.pairs[0].correlation is None
    assert noise_at("nano", records=[], metric="val_loss", compared=[]).pooled_sd is None


def test_the_levels_of_all_looks_sum_to_alpha():
    assert spend([3, 6, 12], alpha=0.05) == pytest.approx([0.0125, 0.0125, 0.025])
    assert spend([5], alpha=0.05) == [0.05]


def test_a_power_law_is_continued_exactly():
    curve = [(1000.0 * n, 10.0 * (1000.0 * n) ** -0.1) for n in range(1, 9)]
    needed = tokens_needed(curve, target=10.0 * 50_000.0**-0.1)
    assert needed == pytest.approx(50_000.0)
    assert tokens_needed(curve, target=1.0) is None  # 1e10 tokens: over a hundred times the budget
    assert tokens_needed(curve, target=10.0) is None  # reached long ago
    assert tokens_needed(curve[:2], target=4.0) is None
    assert tokens_needed([(1.0, 4.0), (2.0, 4.0), (3.0, 4.1), (4.0, 4.2)], target=3.0) is None
