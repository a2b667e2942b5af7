"""Each shape of claim against planted effects, divergences and missing runs."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pytest
from scipy import stats

from knockout.declare.claim import Claim
from knockout.judge import Judgement, Verdict

BASE = [3.30, 3.28, 3.32, 3.31, 3.29]
NOISE = (0.004, -0.004, 0.002, -0.002, 0.0)


def expecting(**expect: Any) -> Claim:
    return Claim.model_validate({"id": "T1", "says": "something", "expect": expect})


def only(judgement: Judgement) -> Verdict:
    (verdict,) = judgement.verdicts
    return verdict


def cells(cell: Any, *, size: str = "nano", total: int = 10, **shifts: Any) -> list[Any]:
    """A baseline and variants that many nats over it with a little noise of their own; None diverges in every seed."""
    records = cell("baseline", BASE, size=size, parameters={"total": total})
    for place, (name, shift) in enumerate(shifts.items()):
        noise = NOISE[place % 5 :] + NOISE[: place % 5]
        losses = [None if shift is None else b + shift + e for b, e in zip(BASE, noise, strict=True)]
        records += cell(name, losses, size=size, parameters={"total": 7})
    return records


def seeds_until(distance: float, *, alpha: float) -> int:
    """The fewest seeds with which t of this level, at the noise of one cell alone, is expected to see a distance."""
    sd = statistics.stdev(NOISE)
    return next(n for n in range(2, 200) if stats.t.ppf(1.0 - alpha, n - 1) * sd / math.sqrt(n) < distance)


@pytest.mark.parametrize(
    ("settings", "shifts", "outcome"),
    [
        ({"direction": "falls"}, (0.4, 0.3, 0.2), "supported"),
        ({"direction": "rises"}, (0.4, 0.3, 0.2), "refuted"),
        ({"direction": "rises"}, (0.2, 0.3, 0.5), "supported"),
        ({"direction": "falls", "by": 0.05}, (0.4, 0.3, 0.2), "supported"),
        ({"direction": "falls", "by": 0.15}, (0.4, 0.3, 0.2), "refuted"),
        ({"direction": "falls"}, (0.4, 0.3, 0.35), "refuted"),
        ({"direction": "falls"}, (0.4, 0.3, 0.297), "inconclusive"),
    ],
)
def test_an_order_stands_with_its_weakest_step(judge: Any, cell: Any, settings: Any, shifts: Any, outcome: str) -> None:
    a, b, c = shifts
    verdict = only(judge(expecting(**{"is": "order", "along": ["a", "b", "c"], **settings}), cells(cell, a=a, b=b, c=c)))
    assert verdict.outcome == outcome
    sign = 1 if settings["direction"] == "falls" else -1
    assert verdict.effect == pytest.approx(min(sign * (a - b), sign * (b - c)), abs=1e-9)
    assert verdict.variant == "a → b → c"
    assert (verdict.more_seeds is not None) == (outcome == "inconclusive")


def test_an_order_names_its_weakest_step_with_interval_and_unit(judge: Any, cell: Any) -> None:
    claim = expecting(**{"is": "order", "along": ["a", "b", "c"], "direction": "falls", "by": 0.05})
    records = cell("baseline", [3.3] * 3) + cell("a", [3.9] * 3) + cell("b", [3.6] * 3) + cell("c", [3.5, 3.49, 3.51])
    # From b to c the differences are 0.10, 0.11, 0.09: mean 0.1, to the lower end 4.303 · 0.01 / √3 = 0.0248, and with
    # both steps to be bounded at once, t(1 - 0.05 / 4, 2) = 6.205, to the upper one 0.0358.
    assert only(judge(claim, records)).reason == (
        "along a → b → c the weakest step is from b to c, val_loss falling by 0.1 nats, 95 % interval 0.0752 to 0.136, "
        "3 paired seeds; the claim asked for it to fall by more than 0.05 nats at every step"
    )


def test_a_divergence_in_an_order_is_the_highest_loss(judge: Any, cell: Any) -> None:
    claim = expecting(**{"is": "order", "along": ["a", "b", "c"], "direction": "falls"})
    verdict = only(judge(claim, cells(cell, a=None, b=0.3, c=0.1)))
    assert (verdict.outcome, verdict.effect) == ("supported", pytest.approx(0.2))
    reverse = only(judge(claim, cells(cell, a=0.3, b=0.1, c=None)))
    assert (reverse.outcome, reverse.effect) == ("refuted", None)
    assert "from b to c: b diverged in 0 of 5 paired seeds, c in 5; compared by rank on val_loss" in reverse.reason
    tie = only(judge(claim, cells(cell, a=None, b=None, c=0.1)))
    assert (tie.outcome, tie.more_seeds) == ("inconclusive", None)
    assert tie.reason.endswith("more seeds needed; how many is not estimated, because runs diverged")


KNEE = {"is": "knee", "along": {"1": "e1", "2": "e2", "4": "baseline", "8": "e8"}}


@pytest.mark.parametrize(
    ("shifts", "within", "outcome", "knee"),
    [
        ({"e1": 0.3, "e2": 0.1, "e8": -0.005}, [2, 4], "supported", 4.0),
        ({"e1": 0.3, "e2": 0.1, "e8": -0.005}, [4, 4], "supported", 4.0),
        ({"e1": 0.3, "e2": 0.1, "e8": -0.005}, [1, 2], "refuted", 4.0),
        ({"e1": 0.3, "e2": 0.005, "e8": -0.4}, [2, 2], "supported", 2.0),
        ({"e1": 0.3, "e2": 0.1, "e8": -0.1}, [8, None], "supported", 8.0),
        ({"e1": 0.3, "e2": 0.1, "e8": -0.019}, [4, 4], "inconclusive", 4.0),
    ],
)
def test_a_knee_is_where_doubling_first_gains_too_little(
    judge: Any, cell: Any, shifts: Any, within: list[float | None], outcome: str, knee: float
) -> None:
    verdict = only(judge(expecting(**KNEE, within=within), cells(cell, **shifts)))
    assert (verdict.outcome, verdict.effect, verdict.threshold) == (outcome, knee, 0.02)
    assert verdict.interval is not None
    assert verdict.interval.low <= knee <= verdict.interval.high
    assert verdict.last == 8.0
    assert ("more seeds needed" in verdict.reason) == (outcome == "inconclusive")


def test_a_knee_names_its_confidence_set(judge: Any, cell: Any) -> None:
    verdict = only(judge(expecting(**KNEE, within=[4, 4]), cells(cell, e1=0.3, e2=0.1, e8=-0.019)))
    assert verdict.reason == (
        "the knee of val_loss along e1 → e2 → baseline → e8, the smallest x at which doubling it gains less than 0.02 nats, "
        "is 4, 95 % confidence set {4, 8 or beyond}, 5 paired seeds; the claim asked for 4; about 44 more seeds needed"
    )
    # Open is "8 or beyond", which falls with one of three steps shown to gain less than 0.02: the last seems to, by 0.001.
    assert verdict.more_seeds == seeds_until(0.001, alpha=0.05 / 3) - 5


def test_a_threshold_that_seems_to_lie_elsewhere_says_what_would_show_it(judge: Any, cell: Any) -> None:
    """Claimed is 2; its gap of 0.499 is to be shown not to be over 0.5, alone in its hypothesis."""
    claim = expecting(**{"is": "threshold", "along": depths(d2="baseline", d8="baseline"), "by": 0.5, "within": [2, 2]})
    verdict = only(judge(claim, cells(cell, nd2=0.499, nd8=2.0)))
    assert (verdict.outcome, verdict.more_seeds) == ("inconclusive", seeds_until(0.001, alpha=0.05) - 5)


def test_without_an_estimate_it_is_said_why(judge: Any, cell: Any) -> None:
    claim = expecting(**{"is": "threshold", "along": depths(d2="baseline", d8="baseline"), "by": 0.5, "within": [8, 8]})
    verdict = only(judge(claim, cells(cell, nd2=0.499, nd8=None)))
    assert (verdict.outcome, verdict.more_seeds) == ("inconclusive", None)
    assert verdict.reason.endswith("more seeds needed; how many is not estimated, because runs diverged")


def test_a_divergence_leaves_no_knee_no_ratio_and_no_trend(judge: Any, cell: Any) -> None:
    small, large = (cells(cell, size=size, e1=0.3, e2=None, e8=0.0, total=n) for size, n in (("pico", 10), ("nano", 20)))
    for expect in (
        {**KNEE, "within": [2, 4]},
        {"is": "ratio", "variant": "e2", "between": [1, 2]},
        {"is": "trend", "variant": "e2", "direction": "grows"},
    ):
        for verdict in judge(expecting(**expect), small + large, sizes=("pico", "nano")).verdicts:
            assert (verdict.outcome, verdict.effect, verdict.p) == ("inconclusive", None, None)
            assert "in 5 of 5 paired seeds" in verdict.reason


def depths(**by_depth: str) -> dict[str, Any]:
    return {x[1:]: {"variant": f"n{x}", "than": than} for x, than in by_depth.items()}


@pytest.mark.parametrize(
    ("shifts", "within", "outcome", "place"),
    [
        ((0.0, 0.1, 2.0), [16, 16], "supported", 16.0),
        ((0.0, 0.1, 2.0), [2, 8], "refuted", 16.0),
        ((0.0, 0.9, 2.0), [4, 16], "supported", 8.0),
        ((0.0, 0.1, 0.2), [17, None], "supported", None),
        ((0.0, 0.1, 0.2), [2, 16], "refuted", None),
        ((0.0, 0.499, 2.0), [16, 16], "inconclusive", 16.0),
        ((0.0, 0.1, None), [16, 16], "supported", 16.0),
    ],
)
def test_a_threshold_is_where_the_gap_is_first_too_large(
    judge: Any, cell: Any, shifts: Any, within: Any, outcome: str, place: float | None
) -> None:
    records = cells(cell, nd2=shifts[0], nd8=shifts[1], nd16=shifts[2])
    along = depths(d2="baseline", d8="baseline", d16="baseline")
    verdict = only(judge(expecting(**{"is": "threshold", "along": along, "by": 0.5, "within": within}), records))
    assert (verdict.outcome, verdict.effect) == (outcome, place)
    assert verdict.interval is not None
    assert (verdict.interval.high == math.inf) == (place is None)


def test_a_threshold_says_who_fails_where_and_what_diverged(judge: Any, cell: Any) -> None:
    along = depths(d2="baseline", d8="baseline")
    claim = expecting(**{"is": "threshold", "along": along, "by": 0.5, "within": [8, 8]})
    assert only(judge(claim, cells(cell, nd2=0.0, nd8=None))).reason == (
        "the smallest x at which a variant is worse by more than 0.5 nats on val_loss is 8 (nd8 against baseline); "
        "diverged, which counts as the worst: nd8 in 5, 95 % confidence set {8}, 5 paired seeds; the claim asked for 8"
    )
    beyond = only(judge(claim, cells(cell, nd2=0.0, nd8=0.0)))
    assert "is beyond 8, 95 % confidence set {beyond 8}" in beyond.reason


def interaction(**settings: Any) -> Claim:
    return expecting(**{"is": "interaction", "variant": "a", "than": "b", "over": {"variant": "c"}, **settings})


@pytest.mark.parametrize(("shifts", "outcome"), [((0.9, 0.2, 0.1), "supported"), ((0.3, 0.2, 0.4), "refuted")])
def test_an_interaction_is_a_difference_of_gaps(judge: Any, cell: Any, shifts: Any, outcome: str) -> None:
    a, b, c = shifts
    verdict = only(judge(interaction(by=0.1), cells(cell, a=a, b=b, c=c)))
    assert (verdict.outcome, verdict.effect) == (outcome, pytest.approx(a - b - c))
    which = "0.6 nats larger" if outcome == "supported" else "0.3 nats smaller"
    assert f"the gap of a over b is {which} than that of c over baseline on val_loss" in verdict.reason


def test_gaps_that_share_a_cell_count_it_twice(judge: Any, cell: Any) -> None:
    claim = expecting(**{"is": "interaction", "variant": "a", "than": "b", "over": {"variant": "b"}})
    verdict = only(judge(claim, cells(cell, a=0.9, b=0.2)))
    assert verdict.effect == pytest.approx(0.9 - 2 * 0.2)


def test_a_divergence_in_an_interaction_is_ranked_unless_it_cancels(judge: Any, cell: Any) -> None:
    six = [
        run
        for name, losses in {"a": [None] * 6, "b": [*BASE, 3.3], "c": [*BASE, 3.4], "baseline": [*BASE, 3.3]}.items()
        for run in cell(name, losses)
    ]
    verdict = only(judge(interaction(), six))
    # All six seeds on one side: 1 in 2^6 ways to give signs, doubled.
    assert (verdict.outcome, verdict.p, verdict.effect) == ("supported", pytest.approx(2 / 64), None)
    assert "a diverged in 6 of 6 paired seeds, b in 0, c in 0, baseline in 0; compared by signed ranks" in verdict.reason
    cancelled = only(judge(interaction(), cells(cell, a=None, b=None, c=0.1)))
    assert (cancelled.outcome, cancelled.p) == ("inconclusive", None)
    assert "runs diverged (a in 5, b in 5 of 5 paired seeds) on both sides of the difference" in cancelled.reason


@pytest.mark.parametrize(
    ("between", "outcome"),
    [([1.05, 1.15], "supported"), ([None, 1.15], "supported"), ([1.2, None], "refuted"), ([0.9, 1.05], "refuted")],
)
def test_a_ratio_lies_between_its_ends(judge: Any, cell: Any, between: Any, outcome: str) -> None:
    verdict = only(judge(expecting(**{"is": "ratio", "variant": "v", "between": between}), cells(cell, v=0.33)))
    assert (verdict.outcome, verdict.effect) == (outcome, pytest.approx(1.1))


def test_a_ratio_can_be_of_memory_whatever_the_baseline_has_learnt(judge: Any, cell: Any) -> None:
    def memory(name: str, values: list[float], **changes: Any) -> list[Any]:
        runs = cell(name, [3.95] * len(values))
        return [type(run)(**{**vars(run), "metrics": {"peak_memory_bytes": v}}) for run, v in zip(runs, values, strict=True)]

    records = memory("baseline", [200e6, 201e6, 199e6]) + memory("v", [310e6, 309e6, 311e6])
    ratio = only(
        judge(expecting(**{"is": "ratio", "variant": "v", "between": [1.4, None], "metric": "peak_memory_bytes"}), records)
    )
    assert (ratio.outcome, ratio.effect) == ("supported", pytest.approx(1.55))
    assert "(Fieller), 3 paired seeds; the claim asked for more than 1.4" in ratio.reason
    more = {"is": "higher", "variant": "v", "by": 50e6, "metric": "peak_memory_bytes"}
    assert only(judge(expecting(**more), records)).reason == (
        "v is 110 MB higher than baseline on peak_memory_bytes, 95 % interval 105 to 115, 3 paired seeds; "
        "the claim asked for higher by more than 50 MB"
    )


def test_a_diverged_run_has_no_speed_to_compare(judge: Any, cell: Any) -> None:
    claim = expecting(**{"is": "higher", "variant": "v", "metric": "tokens_per_second"})
    verdict = only(judge(claim, cells(cell, v=None)))
    assert verdict.outcome == "not run"
    assert "v · nano · s0 has no tokens_per_second" in verdict.reason


def test_routing_entropy_is_the_mean_over_the_layers_that_route(judge: Any, cell: Any, run: Any) -> None:
    def routed(name: str, values: list[float]) -> list[Any]:
        metrics = [{"val_loss": 3.3, "routing_entropy/block.00": v, "routing_entropy/block.01": v + 0.2} for v in values]
        return [run(name, seed, metrics=m) for seed, m in enumerate(metrics)]

    claim = expecting(**{"is": "lower", "variant": "v", "metric": "routing_entropy", "by": 0.5})
    verdict = only(judge(claim, routed("baseline", [1.9, 1.91, 1.92]) + routed("v", [0.9, 0.91, 0.92])))
    assert (verdict.outcome, verdict.effect) == ("supported", pytest.approx(-1.0))
    assert "v is 1 nat lower than baseline on routing_entropy" in verdict.reason


@pytest.mark.parametrize(("direction", "outcome"), [("grows", "supported"), ("shrinks", "refuted")])
def test_a_trend_is_a_slope_per_doubling_and_one_verdict_over_all_sizes(
    judge: Any, cell: Any, direction: str, outcome: str
) -> None:
    # Gaps of 0.1, 0.3 and 0.7 at 0, 1 and 3 doublings lie on a line of slope 0.2.
    sizes = {"pico": (1000, 0.1), "nano": (2000, 0.3), "micro": (8000, 0.7)}
    records = [run for size, (n, gap) in sizes.items() for run in cells(cell, size=size, total=n, v=gap)]
    claim = expecting(**{"is": "trend", "variant": "v", "direction": direction, "by": 0.1})
    verdict = only(judge(claim, records, sizes=tuple(sizes)))
    assert (verdict.outcome, verdict.size, verdict.effect) == (outcome, "pico … micro", pytest.approx(0.2))
    assert verdict.note is None
    assert verdict.cost_seconds == 2 * 3 * 5 * 10.0
    assert "on val_loss rises by 0.2 nats with each doubling of the baseline's parameters" in verdict.reason


def test_a_trend_needs_sizes_that_differ(judge: Any, cell: Any) -> None:
    claim = expecting(**{"is": "trend", "variant": "v", "direction": "grows"})
    alone = only(judge(claim, cells(cell, v=0.1)))
    assert (alone.outcome, alone.size) == ("not run", "nano")
    assert "needs baselines with two numbers of parameters or more, and has nano: 10" in alone.reason
    missing = only(judge(claim, cells(cell, v=0.1), sizes=("nano", "micro")))
    assert "nano: 10, micro: no run" in missing.reason


def test_trends_are_a_family_of_their_own(judge: Any, cell: Any) -> None:
    records = [
        run
        for size, n, gap in (("pico", 1000, 0.1), ("nano", 2000, 0.3))
        for run in cells(cell, size=size, total=n, v=gap, w=0.001)
    ]
    trend = expecting(**{"is": "trend", "variant": "v", "direction": "grows"})
    others = [Claim.model_validate({"id": f"w{i}", "says": "", "expect": {"is": "worse", "variant": "w"}}) for i in range(3)]
    alone = judge(trend, records, sizes=("pico", "nano")).verdicts[0]
    among = judge([trend, *others], records, sizes=("pico", "nano")).verdicts
    assert among[0] == alone
    assert len(among) == 1 + 3 * 2


def test_a_trend_over_a_size_without_a_competent_baseline_concludes_nothing(judge: Any, cell: Any) -> None:
    pico = [run for name in ("baseline", "v") for run in cell(name, [3.95] * 5, size="pico", parameters={"total": 5})]
    claim = expecting(**{"is": "trend", "variant": "v", "direction": "grows"})
    verdict = only(judge(claim, pico + cells(cell, v=0.4), sizes=("pico", "nano")))
    assert verdict.outcome == "inconclusive"
    assert "the baseline at pico has not learnt enough" in verdict.reason


@pytest.mark.parametrize(
    "expect",
    [
        {"is": "order", "along": ["a", "b"], "direction": "falls"},
        {"is": "knee", "along": {"1": "a", "2": "b"}, "within": [1, 1]},
        {"is": "threshold", "along": {"1": {"variant": "a"}, "2": {"variant": "b"}}, "by": 0.5, "within": [1, 1]},
        {"is": "interaction", "variant": "a", "over": {"variant": "b"}},
    ],
)
def test_seeds_are_paired_over_all_cells_and_what_is_missing_is_named(
    judge: Any, cell: Any, run: Any, expect: dict[str, Any]
) -> None:
    records = cells(cell, a=0.4, b=0.1)
    records[-1] = run("b", 4, state="failed", reason="out of memory")
    verdict = only(judge(expecting(**expect), records))
    assert verdict.num_seeds == 4
    assert "left out: b · nano · s4 (failed: out of memory)" in verdict.reason
    none = only(judge(expecting(**expect), [r for r in records if r.variant != "b"]))
    assert none.outcome == "not run"
    assert "no run of b" in none.reason


def test_an_order_that_holds_a_model_which_sees_the_future_goes_by_generation_loss(judge: Any, cell: Any, run: Any) -> None:
    records = cells(cell, a=0.4)
    records += [run("b", s, metrics={"val_loss": 0.03, "generation_loss": 9.0 + 0.1 * s}, causal=False) for s in range(5)]
    verdict = only(judge(expecting(**{"is": "order", "along": ["a", "b"], "direction": "rises", "by": 1.0}), records))
    assert (verdict.outcome, verdict.metric) == ("supported", "generation_loss")
    assert verdict.reason.startswith("b sees the future on val_loss, so generation_loss decides: along a → b")
