"""Values that lie too far off: published critical values, and error rates by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from knockout.judge.statistics.outliers import grubbs_critical, outlier, prediction_bound


@pytest.mark.parametrize(
    ("num_values", "alpha", "critical"),
    [
        # Grubbs (1969), two-sided: table 1, columns 0.5 % and 2.5 % of a side.
        (3, 0.01, 1.155),
        (4, 0.01, 1.496),
        (5, 0.01, 1.764),
        (6, 0.01, 1.973),
        (10, 0.01, 2.482),
        (5, 0.05, 1.715),
        (10, 0.05, 2.290),
        (20, 0.05, 2.709),
    ],
)
def test_critical_values_are_those_of_grubbs_table(num_values: int, alpha: float, critical: float):
    assert grubbs_critical(num_values, alpha=alpha) == pytest.approx(critical, abs=1e-3)


@pytest.mark.parametrize(("num_values", "alpha"), [(3, 0.05), (5, 0.01), (10, 0.01)])
def test_a_sound_sample_has_an_outlier_as_often_as_the_level_says(num_values: int, alpha: float):
    studies = 400_000
    samples = np.random.default_rng(num_values).normal(size=(studies, num_values))
    furthest = np.abs(samples - samples.mean(axis=1, keepdims=True)).max(axis=1) / samples.std(axis=1, ddof=1)
    rate = float((furthest > grubbs_critical(num_values, alpha=alpha)).mean())
    noise = 3.3 * math.sqrt(alpha * (1.0 - alpha) / studies)
    # Bonferroni over the values: exact while no two of them can both be over, which holds for few values.
    assert rate == pytest.approx(alpha, abs=noise)


def test_the_value_that_lies_off_is_named_and_samples_without_one_are_left_alone():
    assert outlier([3.525, 3.503, 3.537, 3.907, 3.470], alpha=0.01) == 3
    assert outlier([3.0, 3.5, 3.5, 3.51, 3.49, 3.5], alpha=0.01) == 0
    assert outlier([3.525, 3.503, 3.537, 3.6, 3.470], alpha=0.01) is None
    assert outlier([3.5, 3.5, 3.5, 3.5], alpha=0.01) is None, "no spread"
    assert outlier([3.5, 9.0], alpha=0.01) is None
    assert outlier([3.50, 3.51, 3.53], alpha=0.01) is None
    assert outlier([3.50, 3.50, 9.00], alpha=0.01) == 2, "of three, only where two are all but equal"


def test_a_sound_trial_lies_under_its_bound_as_often_as_the_level_says_and_the_best_of_k_at_most_k_times_so_often():
    studies, num_seen, alpha = 400_000, 5, 0.005
    random = np.random.default_rng(8)
    seeds, trials = random.normal(size=(studies, num_seen)), random.normal(size=(studies, 5))
    bounds = seeds.std(axis=1, ddof=1) * prediction_bound(1.0, num_seen=num_seen, alpha=alpha)
    above = seeds.mean(axis=1)[:, None] - trials
    noise = 3.3 * math.sqrt(alpha * (1.0 - alpha) / studies)
    assert (above[:, 0] > bounds).mean() == pytest.approx(alpha, abs=noise)
    best = (above.max(axis=1) > bounds).mean()
    assert alpha < best < 5 * alpha


def test_a_trial_of_several_seeds_has_a_narrower_bound():
    studies, alpha = 200_000, 0.01
    random = np.random.default_rng(9)
    seeds, trial = random.normal(size=(studies, 4)), random.normal(size=(studies, 3)).mean(axis=1)
    bounds = seeds.std(axis=1, ddof=1) * prediction_bound(1.0, num_seen=4, num_new=3, alpha=alpha)
    noise = 3.3 * math.sqrt(alpha * (1.0 - alpha) / studies)
    assert (seeds.mean(axis=1) - trial > bounds).mean() == pytest.approx(alpha, abs=noise)
    assert prediction_bound(0.1, num_seen=5, alpha=0.005) == pytest.approx(stats.t.ppf(0.995, 4) * 0.1 * math.sqrt(1.2))
