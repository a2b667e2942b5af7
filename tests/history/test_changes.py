"""What counts as a change between nights: against scipy, planted numbers, and false alarms of nights without a change."""

from __future__ import annotations

import random
from dataclasses import replace
from statistics import fmean, stdev

import pytest
from scipy import stats

from knockout.history.changes import ALPHA, Sample, changes, differ, pooled
from knockout.history.nights import SEEDS_A_NIGHT, code_digest, first_seed_of, num_nights, repeats
from knockout.history.rows import Row, rows_of
from knockout.history.table import append, read
from knockout.ledger.workspace import open_workspace

ROW = Row(
    time=0.0, study="s", size="pico", kind="metric", name="baseline", metric="val_loss", outcome=None, mean=3.0, sd=0.1,
    num_seeds=3, first_seed=0, submission="x", declaration="d", machine="m", versions="v", code="c",
)  # fmt: skip


def sample(values: list[float]) -> Sample:
    return Sample(fmean(values), stdev(values) if len(values) > 1 else 0.0, len(values))


def night(number: int, values: list[float], **changed: object) -> Row:
    drawn = sample(values)
    seeds = {"time": float(number), "first_seed": 100 * number, "num_seeds": drawn.count}
    return replace(ROW, **{"mean": drawn.mean, "sd": drawn.sd, **seeds, **changed})  # pyright: ignore[reportArgumentType]


def claim(number: int, outcome: str, *, effect: float = 0.5) -> Row:
    return night(number, [effect, effect + 0.1, effect - 0.1], kind="claim", name="c1", metric="effect", outcome=outcome)


def test_samples_pool_to_what_all_values_give_and_differ_as_in_scipy():
    draw = random.Random(0)
    nights = [[draw.gauss(0, 1) for _ in range(count)] for count in (1, 2, 5, 3)]
    one, every = [0.7, 1.3, 2.4], [value for values in nights for value in values]
    together = pooled(map(sample, nights))
    assert (together.mean, together.sd, together.count) == pytest.approx((fmean(every), stdev(every), 11))
    assert differ(sample(one), together) == pytest.approx(stats.ttest_ind(one, every).pvalue)
    assert differ(sample([2.0]), together) == pytest.approx(stats.ttest_ind([2.0], every).pvalue)
    assert differ(sample([1.0]), sample([2.0])) is None
    assert (differ(sample([1.0, 1.0]), sample([1.0])), differ(sample([1.0, 1.0]), sample([2.0]))) == (1.0, 0.0)


def test_a_shift_of_six_spreads_is_a_drift_and_names_both_values():
    past = [night(number, [3.0, 3.1, 2.9]) for number in range(1, 4)]
    (found,) = changes([night(4, [3.6, 3.7, 3.5])], past=past)
    assert (found.kind, found.before, found.now) == ("drifted", "3", "3.6")
    assert "val_loss of baseline at pico is 3.6, and was 3 ± 0.087 over 9 seeds" in found.sentence
    assert changes([night(4, [3.05, 3.1, 2.9])], past=past) == []


def test_nights_without_a_change_alarm_no_more_often_than_declared():
    draw, alarms, nights = random.Random(1), 0, 600
    for _ in range(nights):
        cells = [{"name": f"v{cell}"} for cell in range(5)]
        past = [night(n, [draw.gauss(0, 1) for _ in range(3)], **cell) for n in range(1, 4) for cell in cells]
        alarms += bool(changes([night(9, [draw.gauss(0, 1) for _ in range(3)], **cell) for cell in cells], past=past))
    assert stats.binomtest(alarms, nights, ALPHA, alternative="greater").pvalue > 0.001


def test_verdicts_flip_weaken_and_are_decided():
    def kinds(before: str, now: str) -> list[str]:
        return [change.kind for change in changes([claim(2, now)], past=[claim(1, before)])]

    assert kinds("supported", "refuted") == kinds("refuted", "supported") == ["flipped"]
    assert kinds("supported", "inconclusive") == ["weakened"]
    assert kinds("inconclusive", "supported") == ["decided"]
    assert kinds("supported", "supported") == []


def test_throughput_is_held_against_the_same_machine_only():
    def speed(number: int, value: float, machine: str = "m") -> Row:
        return night(number, [value], metric="tokens_per_second", machine=machine)

    past = [speed(1, 1000.0), speed(2, 1010.0), speed(3, 990.0)]
    (found,) = changes([speed(4, 700.0)], past=past)
    assert (found.kind, found.before, found.now) == ("slower", "1000", "700")
    assert "-30%" in found.sentence
    assert changes([speed(4, 700.0, machine="another")], past=past) == []
    assert changes([speed(4, 950.0)], past=past) == []
    noisy = [speed(1, 1000.0), speed(2, 700.0), speed(3, 1300.0)]
    assert changes([speed(4, 800.0)], past=noisy) == []


def test_another_declaration_begins_a_new_history_and_the_same_seeds_are_no_evidence():
    past = [night(number, [3.0, 3.1, 2.9]) for number in range(1, 4)]
    other = night(4, [9.0, 9.1, 8.9], declaration="e")
    assert [change.kind for change in changes([other], past=past)] == ["redeclared"]
    again = night(1, [3.0, 3.1, 2.9])
    assert changes([again], past=[night(1, [9.0, 9.1, 8.9])]) == []


def test_rows_come_from_a_report_with_the_spread_of_paired_differences():
    differences = [0.4, 0.5, 0.75]
    mean, half = fmean(differences), stats.t.ppf(0.975, 2) * stdev(differences) / 3**0.5
    facts = {
        "study": {"name": "s", "declaration": "study: s"},
        "versions": {"knockout": "1", "torch": "2", "pytorch-lightning": "3"},
        "machine": {"processor": "p", "cores": 2},
        "finals": [{"size": "pico", "variant": "v", "metrics": {"val_loss": {"mean": 3.0, "sd": None, "num_seeds": 1}}}],
        "verdicts": [
            {
                "claim": "c", "size": "pico", "outcome": "supported", "relation": "worse", "effect": mean, "num_seeds": 3,
                "interval": {"low": mean - half, "high": mean + half, "level": 0.95},
            }
        ],
    }  # fmt: skip
    metric, decided = rows_of(facts, time=1.0, submission="x", first_seed=7, code="c")
    assert (metric.name, metric.mean, metric.sd, metric.num_seeds, metric.first_seed) == ("v", 3.0, None, 1, 7)
    assert (decided.name, decided.outcome, decided.mean) == ("c", "supported", mean)
    assert decided.sd == pytest.approx(stdev(differences))


def test_the_history_is_a_table_that_polars_reads(tmp_path):
    import polars as pl

    workspace = open_workspace(tmp_path)
    assert read(workspace) == []
    second = [night(2, [1.0, 2.0]), replace(claim(2, "supported"), sd=None)]
    append(second, workspace=workspace)
    append([night(1, [3.0, 4.0], study="other")], workspace=workspace)
    assert read(workspace) == [night(1, [3.0, 4.0], study="other"), *second]
    assert read(workspace, study="s") == second
    table = pl.read_parquet(tmp_path / "history" / "*.parquet")
    assert (table.height, str(table.schema["time"])) == (3, "Datetime(time_unit='us', time_zone='UTC')")
    assert len(list((tmp_path / "history").iterdir())) == 2


def test_a_second_sweep_of_a_day_is_no_second_night():
    past = [night(1, [3.0]), night(2, [3.1]), replace(night(2, [3.1]), time=2.5), night(2, [9.0], study="other")]
    assert num_nights(past, besides=300) == 2
    assert num_nights(past, besides=200) == 1
    assert repeats([night(2, [3.1])], past=past) == 2.5
    assert repeats([night(3, [3.1])], past=past) is None
    assert repeats([night(1, [3.1], study="other")], past=past) is None


def test_every_day_has_seeds_of_its_own():
    from datetime import date, timedelta

    day = date(2026, 11, 29)
    assert first_seed_of(day + timedelta(days=1)) - first_seed_of(day) == SEEDS_A_NIGHT
    assert first_seed_of(date(2020, 1, 1)) >= SEEDS_A_NIGHT
    assert first_seed_of(date(2047, 5, 17)) + SEEDS_A_NIGHT <= 1_000_000
    assert len(code_digest()) == 12
