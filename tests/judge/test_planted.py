"""Planted truth by simulation: error rates at the boundary, power as theory gives it, coverage of intervals and sets."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from knockout.declare.claim import Claim
from knockout.judge import Judgement
from knockout.judge.statistics.evidence import Sides, all_of, over
from knockout.judge.statistics.fieller import Fieller
from knockout.judge.statistics.first import First, first_true
from knockout.judge.statistics.ranks import SignedRank, sign_flip_p
from knockout.judge.statistics.student import paired_t

ALPHA = 0.05
NOISE = 0.02


def monte_carlo(rate: float, *, studies: int) -> float:
    """What a share over so many studies may be off by: 3.3 standard errors, exceeded in one of a thousand tests."""
    return 3.3 * math.sqrt(rate * (1.0 - rate) / studies)


def power_of_t(distance: float, *, sd: float, num_seeds: int, alpha: float) -> float:
    """The chance that a one-sided t test of level alpha rejects: the noncentral t distribution (Johnson and Welch 1940)."""
    critical = stats.t.ppf(1.0 - alpha, num_seeds - 1)
    return float(stats.nct.sf(critical, num_seeds - 1, distance * math.sqrt(num_seeds) / sd))


Simulate = Callable[[Claim, dict[tuple[str, str], float], int], list[str]]


@pytest.fixture
def simulate(judge: Any, cell: Any) -> Simulate:
    """The outcomes of many studies whose cells have these expectations, each run with noise of its own."""

    def run(claim: Claim, means: dict[tuple[str, str], float], num_seeds: int, studies: int = 600) -> list[str]:
        rng = np.random.default_rng(len(claim.says))
        sizes = list(dict.fromkeys(size for _, size in means))
        totals = {size: 1000 * 2**place for place, size in enumerate(sizes)}
        outcomes = []
        for _ in range(studies):
            records = [
                record
                for (name, size), mean in means.items()
                for record in cell(
                    name, list(rng.normal(mean, NOISE, num_seeds)), size=size, parameters={"total": totals[size]}
                )
            ]
            (verdict,) = judge(claim, records, sizes=sizes).verdicts
            outcomes.append(verdict.outcome)
        return outcomes

    return run  # type: ignore[return-value]


def expecting(**expect: Any) -> Claim:
    return Claim.model_validate({"id": "T1", "says": f"{expect['is']}", "expect": expect})


def at_nano(**means: float) -> dict[tuple[str, str], float]:
    return {("baseline", "nano"): 3.3} | {(name, "nano"): 3.3 + shift for name, shift in means.items()}


ORDER = {"is": "order", "along": ["a", "b", "c"], "direction": "falls", "by": 0.1}
KNEE = {"is": "knee", "along": {"1": "a", "2": "b", "4": "c"}, "margin": 0.1}
THRESHOLD = {"is": "threshold", "along": {"2": {"variant": "a"}, "4": {"variant": "b"}}, "by": 0.1}
INTERACTION = {"is": "interaction", "variant": "a", "than": "b", "over": {"variant": "c"}, "by": 0.1}
RATIO = {"is": "ratio", "variant": "a", "between": [1.0, 1.2]}
TREND = {"is": "trend", "variant": "a", "direction": "grows", "by": 0.1}
AT_THE_BOUNDARY = [
    (ORDER, at_nano(a=0.5, b=0.2, c=0.1)),
    ({**KNEE, "within": [1, 2]}, at_nano(a=0.5, b=0.2, c=0.1)),
    ({**KNEE, "within": [4, 4]}, at_nano(a=0.3, b=0.2, c=0.1 + 1e-9)),
    ({**THRESHOLD, "within": [4, 4]}, at_nano(a=0.1 + 1e-9, b=0.5)),
    (INTERACTION, at_nano(a=0.5, b=0.2, c=0.2)),
    (RATIO, at_nano(a=0.2 * 3.3)),
    (TREND, {("baseline", s): 3.3 for s in "xyz"} | {("a", s): 3.4 + 0.1 * k for k, s in enumerate("xyz")}),
]


@pytest.mark.parametrize(("expect", "means"), AT_THE_BOUNDARY)
@pytest.mark.parametrize("num_seeds", [3, 5])
def test_a_claim_that_is_just_not_true_is_supported_in_at_most_alpha_of_studies(
    simulate: Simulate, expect: dict[str, Any], means: dict[tuple[str, str], float], num_seeds: int
) -> None:
    outcomes = simulate(expecting(**expect), means, num_seeds)
    wrong = outcomes.count("supported") / len(outcomes)
    assert wrong <= ALPHA + monte_carlo(ALPHA, studies=len(outcomes))


JUST_TRUE = [
    (ORDER, at_nano(a=0.4, b=0.3, c=0.2)),
    ({**KNEE, "within": [1, 1]}, at_nano(a=0.3, b=0.2 + 1e-9, c=0.1)),
    ({**THRESHOLD, "within": [2, 2]}, at_nano(a=0.1 + 1e-9, b=0.1)),
    (INTERACTION, at_nano(a=0.5, b=0.2, c=0.2)),
    (RATIO, at_nano(a=0.2 * 3.3)),
]


@pytest.mark.parametrize(("expect", "means"), JUST_TRUE)
def test_a_claim_that_is_just_true_is_refuted_in_at_most_alpha_of_studies(
    simulate: Simulate, expect: dict[str, Any], means: dict[tuple[str, str], float]
) -> None:
    outcomes = simulate(expecting(**expect), means, 3)
    assert outcomes.count("refuted") / len(outcomes) <= ALPHA + monte_carlo(ALPHA, studies=len(outcomes))


@pytest.mark.parametrize("num_seeds", [3, 5])
@pytest.mark.parametrize(
    ("expect", "means", "distance", "sd"),
    [
        (INTERACTION, at_nano(a=0.48, b=0.2, c=0.1), 0.08, 2.0 * NOISE),
        # The slope over two sizes a doubling apart is the difference of two gaps of two runs.
        (TREND, {("baseline", "x"): 3.3, ("baseline", "y"): 3.3, ("a", "x"): 3.4, ("a", "y"): 3.58}, 0.08, 2.0 * NOISE),
        # a - 1.2 b has expectation 3.3 (1.22 - 1.2) and variance (1 + 1.2²) sd².
        ({**RATIO, "between": [1.2, None]}, at_nano(a=0.22 * 3.3), 0.066, math.sqrt(1.0 + 1.2**2) * NOISE),
        ({"is": "order", "along": ["a", "b"], "direction": "falls"}, at_nano(a=0.26, b=0.2), 0.06, math.sqrt(2.0) * NOISE),
    ],
)
def test_power_is_that_of_the_noncentral_t(
    simulate: Simulate,
    expect: dict[str, Any],
    means: dict[tuple[str, str], float],
    distance: float,
    sd: float,
    num_seeds: int,
) -> None:
    outcomes = simulate(expecting(**expect), means, num_seeds)
    power = power_of_t(distance, sd=sd, num_seeds=num_seeds, alpha=ALPHA / 2.0)
    assert 0.1 < power < 0.95
    found = outcomes.count("supported") / len(outcomes)
    assert found == pytest.approx(power, abs=monte_carlo(power, studies=len(outcomes)))


def test_the_power_of_a_knee_with_one_step_is_that_of_one_test_at_alpha(simulate: Simulate) -> None:
    claim = expecting(**{"is": "knee", "along": {"1": "a", "2": "b"}, "margin": 0.1, "within": [1, 1]})
    outcomes = simulate(claim, at_nano(a=0.25, b=0.2), 4)
    power = power_of_t(0.05, sd=math.sqrt(2.0) * NOISE, num_seeds=4, alpha=ALPHA)
    assert outcomes.count("supported") / len(outcomes) == pytest.approx(power, abs=monte_carlo(power, studies=600))


def test_wrong_conclusions_over_a_study_of_several_shapes_stay_under_alpha(judge: Any, cell: Any) -> None:
    rng = np.random.default_rng(8)
    expects = [
        {"is": "order", "along": ["a", "b"], "direction": "falls"},
        {"is": "interaction", "variant": "a", "than": "b", "over": {"variant": "c"}},
        {"is": "ratio", "variant": "c", "between": [1.0, None]},
        {"is": "higher", "variant": "b"},
        {"is": "knee", "along": {"1": "a", "2": "c"}, "margin": 1e-9, "within": [2, 2]},
    ]
    claims = [Claim.model_validate({"id": f"c{i}", "says": "", "expect": expect}) for i, expect in enumerate(expects)]
    studies, wrong = 600, 0
    for _ in range(studies):
        records = [run for name in ("baseline", "a", "b", "c") for run in cell(name, list(rng.normal(3.3, NOISE, 3)))]
        judgement: Judgement = judge(claims, records)
        outcomes = [verdict.outcome for verdict in judgement.verdicts]
        # Without any effect the knee is at 1, which is no wrong thing to say of it.
        wrong += any(outcome in ("supported", "refuted") for outcome in outcomes[:4]) or outcomes[4] == "supported"
    assert wrong / studies <= ALPHA + monte_carlo(ALPHA, studies=studies)


@pytest.mark.parametrize("num_seeds", [3, 5, 10])
@pytest.mark.parametrize(("spread", "shared"), [(0.02, 0.0), (0.2, 0.8)])
def test_fiellers_interval_covers_the_ratio_in_95_of_100_studies(num_seeds: int, spread: float, shared: float) -> None:
    rng = np.random.default_rng(num_seeds)
    studies, truth = 2500, 1.1
    common = rng.normal(0.0, spread * math.sqrt(shared), (studies, num_seeds))
    own = spread * math.sqrt(1.0 - shared)
    lower = 3.3 + common + rng.normal(0.0, own, (studies, num_seeds))
    upper = 3.3 * truth + common + rng.normal(0.0, own, (studies, num_seeds))
    covered = 0
    for a, b in zip(upper, lower, strict=True):
        ends = Fieller(tuple(a), tuple(b)).interval(level=0.95)
        assert ends is not None
        covered += ends[0] <= truth <= ends[1]
    assert covered / studies == pytest.approx(0.95, abs=monte_carlo(0.95, studies=studies))


def test_fiellers_interval_ends_where_its_test_stops_rejecting() -> None:
    seen = Fieller((3.4, 3.52, 3.61, 3.3), (3.1, 3.3, 3.2, 3.15))
    low, high = seen.interval(level=0.95) or (math.nan, math.nan)
    assert seen.above(low) == pytest.approx(0.025)
    assert seen.below(high) == pytest.approx(0.025)


def test_fiellers_interval_is_unbounded_where_the_divisor_may_be_zero() -> None:
    assert Fieller((1.0, 1.2, 0.9), (0.1, 2.5, 0.3)).interval(level=0.95) is None


def sets_of(gaps: NDArray[np.float64], *, threshold: float, places: list[float]) -> list[First]:
    """What is found in each study; `gaps` are studies × seeds × steps."""
    return [
        first_true([over(paired_t(list(step)), threshold=threshold) for step in study.T], places=places) for study in gaps
    ]


@pytest.mark.parametrize("num_seeds", [3, 5, 10])
@pytest.mark.parametrize(
    ("means", "truth"),
    [((0.3, 0.1, 0.0), 4.0), ((0.02, 0.02, 0.02), 8.0), ((0.03, 0.015, 0.02), 2.0), ((0.0, 0.0, 0.0), 1.0)],
)
def test_the_set_of_a_knee_covers_it_and_holds_the_best_guess(
    means: tuple[float, ...], truth: float, num_seeds: int
) -> None:
    # Runs of four widths: steps share a run, so their gains are correlated.
    rng, studies, margin = np.random.default_rng(num_seeds), 600, 0.02
    runs = rng.normal(0.0, 0.01, (studies, num_seeds, 4))
    gains = np.asarray(means) - np.diff(runs, axis=2)
    found = sets_of(-gains, threshold=-margin, places=[1.0, 2.0, 4.0, 8.0])
    covered = sum(truth in one.members(alpha=ALPHA) for one in found) / studies
    assert covered >= 0.95 - monte_carlo(0.95, studies=studies)
    assert all(one.estimate in one.members(alpha=alpha) for one in found for alpha in (0.01, 0.05, 0.5))


@pytest.mark.parametrize("num_seeds", [3, 5, 10])
@pytest.mark.parametrize(("means", "truth"), [((0.0, 0.49, 0.9), 16.0), ((0.5, 0.5, 0.5), math.inf), ((0.0, 0.6, 0.0), 8.0)])
def test_the_set_of_a_threshold_covers_it(means: tuple[float, ...], truth: float, num_seeds: int) -> None:
    rng, studies = np.random.default_rng(num_seeds), 600
    gaps = np.asarray(means) + rng.normal(0.0, 0.1, (studies, num_seeds, 3))
    found = sets_of(gaps, threshold=0.5, places=[2.0, 8.0, 16.0, math.inf])
    covered = sum(truth in one.members(alpha=ALPHA) for one in found) / studies
    assert covered >= 0.95 - monte_carlo(0.95, studies=studies)


def test_a_conclusion_about_a_place_is_reached_at_the_alpha_at_which_the_set_is_inside() -> None:
    rng = np.random.default_rng(0)
    found = sets_of(rng.normal(0.0, 0.1, (50, 4, 3)), threshold=0.05, places=[1.0, 2.0, 3.0, math.inf])
    for one, inside in itertools.product(found, ([1.0], [2.0, 3.0], [math.inf])):
        sides = one.sides(inside=inside)
        for alpha in (0.01, 0.05, 0.2):
            members = set(one.members(alpha=alpha))
            assert (sides.support <= alpha) == (members <= set(inside))
            assert (sides.refute <= alpha) == (not members & set(inside))


def test_an_intersection_union_test_takes_the_worst_and_refutes_with_bonferroni() -> None:
    sides = all_of([Sides(0.01, 0.99), Sides(0.2, 0.8), Sides(0.999, 0.001)])
    assert (sides.support, sides.refute) == (0.999, pytest.approx(0.003))


@pytest.mark.parametrize("num_seeds", [1, 3, 6])
def test_signed_rank_p_values_count_every_assignment_of_signs(num_seeds: int) -> None:
    rng = np.random.default_rng(num_seeds)
    for _ in range(20):
        draws = [math.inf if rng.random() < 0.3 else float(rng.integers(1, 5)) for _ in range(num_seeds)]
        values = [value if rng.random() < 0.5 else -value for value in draws]
        ranks = stats.rankdata(np.abs(values))
        observed = ranks[np.asarray(values) > 0].sum()
        sums = [ranks[np.asarray(chosen)].sum() for chosen in itertools.product((False, True), repeat=num_seeds)]
        expected = sum(total >= observed - 1e-9 for total in sums) / len(sums)
        assert sign_flip_p(values) == pytest.approx(expected, rel=1e-12)


def test_signed_rank_p_values_without_ties_are_wilcoxons() -> None:
    values = list(np.random.default_rng(1).normal(0.4, 1.0, 12))
    for threshold in (0.0, 0.3):
        expected = stats.wilcoxon(np.asarray(values) - threshold, alternative="greater", method="exact")[1]
        assert SignedRank(tuple(values)).above(threshold) == pytest.approx(expected, rel=1e-10)


def test_a_signed_rank_refuses_what_has_no_value_and_counts_zero_against_the_conclusion() -> None:
    with pytest.raises(ValueError, match="no NaN"):
        sign_flip_p([1.0, math.nan])
    assert sign_flip_p([0.0, 0.0]) == 1.0
    assert sign_flip_p([0.0, 2.0, 3.0]) == pytest.approx(2 / 8)


@pytest.mark.parametrize("shifts", [(0.5, 0.4, 0.3, 0.2), (0.9, 0.6, 0.55, 0.1), (0.3, 0.3, 0.3, 0.3)], ids=str)
def test_the_interval_of_an_order_covers_its_smallest_step_whichever_that_is(
    judge: Any, cell: Any, shifts: tuple[float, ...]
) -> None:
    """Which mean is the smallest is chance where steps are equal, and that one's own interval would miss too often."""
    rng, studies, covered = np.random.default_rng(11), 600, 0
    claim = expecting(**{"is": "order", "along": ["a", "b", "c", "d"], "direction": "falls"})
    means = dict(zip("abcd", shifts, strict=True)) | {"baseline": 0.0}
    truth = min(first - second for first, second in itertools.pairwise(shifts))
    for _ in range(studies):
        records = [run for name, shift in means.items() for run in cell(name, list(rng.normal(3.3 + shift, NOISE, 5)))]
        (verdict,) = judge(claim, records).verdicts
        covered += verdict.interval.low <= truth <= verdict.interval.high
    assert covered / studies >= 0.95 - monte_carlo(0.95, studies=studies)


def test_the_interval_of_an_order_and_its_outcome_agree(judge: Any, cell: Any) -> None:
    """Supported where it lies over what was asked for, refuted where under, open where it holds it."""
    rng, by = np.random.default_rng(12), 0.05
    claim = expecting(**{"is": "order", "along": ["a", "b", "c"], "direction": "falls", "by": by})
    for _ in range(300):
        shifts = {"baseline": 0.0, "a": 0.2, "b": rng.uniform(0.05, 0.25), "c": rng.uniform(-0.1, 0.2)}
        records = [run for name, shift in shifts.items() for run in cell(name, list(rng.normal(3.3 + shift, NOISE, 4)))]
        (verdict,) = judge(claim, records).verdicts
        low, high = verdict.interval.low, verdict.interval.high
        assert verdict.outcome == ("supported" if low > by else "refuted" if high < by else "inconclusive")
