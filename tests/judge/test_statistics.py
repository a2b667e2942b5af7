"""The statistics against tables, other programs, and enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from knockout.judge.statistics.binomial import Share
from knockout.judge.statistics.evidence import between, over, under
from knockout.judge.statistics.multiple import holm
from knockout.judge.statistics.planning import more_for_interval, more_for_ranks, more_for_share
from knockout.judge.statistics.ranks import RankTest, permutation_p, share_worse
from knockout.judge.statistics.student import paired_t, t_quantile


@pytest.mark.parametrize(("degrees", "quantile"), [(1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (30, 2.042)])
def test_t_quantiles_are_those_of_the_printed_tables(degrees: int, quantile: float) -> None:
    assert t_quantile(0.975, degrees=degrees) == pytest.approx(quantile, abs=5e-4)


def test_students_sleep_data_give_the_published_interval() -> None:
    # Student 1908, extra sleep under two drugs; R's t.test(paired = TRUE) prints t = -4.0621, p = 0.002833,
    # and the interval -2.4598858 -0.7001142.
    first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    seen = paired_t([a - b for a, b in zip(first, second, strict=True)])
    assert seen.interval(level=0.95) == pytest.approx((-2.4598858, -0.7001142), abs=1e-7)
    assert 2 * seen.below(0.0) == pytest.approx(0.002833, abs=5e-7)


@pytest.mark.parametrize("num_seeds", [3, 5, 10])
def test_the_interval_covers_the_truth_in_95_of_100_studies(num_seeds: int) -> None:
    rng = np.random.default_rng(num_seeds)
    studies = 4000
    differences = rng.normal(0.3, 0.07, size=(studies, num_seeds))
    intervals = (paired_t(list(row)).interval(level=0.95) for row in differences)
    covered = sum(low <= 0.3 <= high for low, high in intervals) / studies
    assert covered == pytest.approx(0.95, abs=3.3 * math.sqrt(0.95 * 0.05 / studies))


def test_differences_without_spread_are_known_and_not_nan() -> None:
    seen = paired_t([0.25, 0.25, 0.25])
    assert seen.interval(level=0.95) == (0.25, 0.25)
    assert (seen.above(0.2), seen.above(0.25), seen.above(0.3)) == (0.0, 1.0, 1.0)
    assert (seen.below(0.2), seen.below(0.25), seen.below(0.3)) == (1.0, 1.0, 0.0)


def test_identical_differences_have_no_spread_even_when_their_mean_rounds() -> None:
    assert paired_t([0.1] * 10).sd == 0.0


def test_a_divergence_is_refused_by_the_t_test() -> None:
    with pytest.raises(ValueError, match="rank test"):
        paired_t([0.1, math.inf])


def test_tost_agrees_with_two_separate_t_tests() -> None:
    differences = [0.004, -0.011, 0.007, 0.002, -0.003]
    low = stats.ttest_1samp(differences, -0.02, alternative="greater").pvalue
    high = stats.ttest_1samp(differences, 0.02, alternative="less").pvalue
    assert between(paired_t(differences), low=-0.02, high=0.02).support == pytest.approx(max(low, high), rel=1e-10)


def test_tost_is_the_worse_of_its_two_sides() -> None:
    # A mean of 0.1 with sd 1 in 100 pairs has t(99) = -2 at 0.3 and 4 at -0.3; the tail at -2 is 0.0241.
    base = np.random.default_rng(0).normal(size=100)
    scaled = (base - base.mean()) / base.std(ddof=1) + 0.1
    assert between(paired_t(list(scaled)), low=-0.3, high=0.3).support == pytest.approx(0.0241, abs=5e-5)


def test_equivalence_is_refuted_only_by_a_difference_over_the_margin() -> None:
    outside = between(paired_t([0.50, 0.51, 0.49]), low=-0.02, high=0.02)
    vague = between(paired_t([0.5, -0.4, 0.1]), low=-0.02, high=0.02)
    assert not outside.supports
    assert outside.p < 0.01
    assert vague.p > 0.5


def test_holm_gives_rs_adjusted_p_values() -> None:
    # R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm") is 0.03 0.06 0.06 0.02
    assert [a.p for a in holm([0.01, 0.04, 0.03, 0.005])] == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []


def _enumerated(larger: list[float], smaller: list[float]) -> float:
    ranks = stats.rankdata([*larger, *smaller])
    observed = ranks[: len(larger)].sum()
    sums = [sum(chosen) for chosen in itertools.combinations(ranks, len(larger))]
    return sum(total >= observed - 1e-9 for total in sums) / len(sums)


@pytest.mark.parametrize("num_seeds", [1, 2, 3, 5])
def test_rank_p_values_count_every_assignment(num_seeds: int) -> None:
    rng = np.random.default_rng(num_seeds)
    for _ in range(20):
        values = [math.inf if rng.random() < 0.3 else float(rng.integers(5)) for _ in range(2 * num_seeds)]
        larger, smaller = values[:num_seeds], values[num_seeds:]
        assert permutation_p(larger, smaller) == pytest.approx(_enumerated(larger, smaller), rel=1e-12)


def test_rank_p_values_without_ties_are_mann_and_whitneys() -> None:
    rng = np.random.default_rng(7)
    first, second = rng.normal(0.5, 1, 12), rng.normal(0, 1, 12)
    expected = stats.mannwhitneyu(first, second, alternative="greater", method="exact").pvalue
    assert permutation_p(list(first), list(second)) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(("num_seeds", "least"), [(3, 1 / 20), (4, 1 / 70), (5, 1 / 252)])
def test_total_divergence_reaches_the_least_p_value_there_is(num_seeds: int, least: float) -> None:
    test = RankTest(variant=(math.inf,) * num_seeds, than=(3.0, 3.1, 3.2, 3.3, 3.4)[:num_seeds])
    assert over(test, threshold=0.5).support == pytest.approx(least)
    assert under(test, threshold=0.0).support == 1.0


def test_a_divergence_on_each_side_is_a_tie() -> None:
    assert permutation_p([math.inf, math.inf], [math.inf, math.inf]) == 1.0


def test_a_threshold_shifts_the_variant_but_not_a_divergence() -> None:
    test = RankTest(variant=(3.4, 3.5, 3.6, math.inf), than=(3.0, 3.1, 3.2, 3.3))
    assert over(test, threshold=0.0).support == pytest.approx(1 / 70)
    assert over(test, threshold=1.0).support > 0.5


@pytest.mark.parametrize(("count", "total"), [(0, 5), (3, 5), (5, 5), (6, 6), (13, 40)])
def test_the_binomial_test_is_the_exact_one(count: int, total: int) -> None:
    share = Share(count=count, total=total)
    for threshold in (0.5, 0.1):
        greater = stats.binomtest(count, total, threshold, alternative="greater")
        less = stats.binomtest(count, total, threshold, alternative="less")
        assert share.above(threshold) == pytest.approx(greater.pvalue)
        assert share.below(threshold) == pytest.approx(less.pvalue)
    exact = stats.binomtest(count, total).proportion_ci(0.95, method="exact")
    assert share.interval(level=0.95) == pytest.approx((exact.low, exact.high))


def test_more_pairs_are_asked_for_until_the_expected_interval_clears_the_threshold() -> None:
    seen = paired_t([0.0, 0.1, 0.2])
    needed = 3 + (more_for_interval(seen, distance=0.1, alpha=0.05) or 0)

    def half(n: int) -> float:
        return float(stats.t.ppf(0.975, n - 1)) * 0.1 / math.sqrt(n)

    assert half(needed) < 0.1 <= half(needed - 1)


def test_more_than_a_hundred_is_not_counted() -> None:
    assert more_for_interval(paired_t([0.0, 0.1, 0.2]), distance=1e-4, alpha=0.05) is None
    assert more_for_ranks(0.5, num_pairs=3, alpha=0.05) is None
    assert more_for_share(Share(count=2, total=4), threshold=0.5, alpha=0.05) is None


def test_three_total_divergences_need_a_fourth_seed_by_rank_and_six_by_binomial() -> None:
    assert more_for_ranks(1.0, num_pairs=3, alpha=0.05) == 1
    assert more_for_share(Share(count=3, total=3), threshold=0.5, alpha=0.05) == 3


def test_share_worse_counts_ties_as_half() -> None:
    assert share_worse([math.inf, 1.0], [1.0, 0.0]) == pytest.approx((1 + 1 + 0.5 + 1) / 4)
