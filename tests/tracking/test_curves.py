"""Which points reach MLflow, as a property of any series of calls."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from knockout.tracking.curves import Row, select

STEPS = st.lists(st.integers(0, 3_000), min_size=1, max_size=60, unique=True).map(sorted)


def rows(steps: list[int], metric: str = "train_loss") -> list[Row]:
    return [Row(metric, step, float(step), 0.0) for step in steps]


@settings(deadline=None, max_examples=60)
@given(steps=STEPS, cuts=st.lists(st.integers(0, 60), max_size=4), planned=st.integers(1, 5_000))
def test_calls_that_overlap_send_what_one_call_would_send(steps: list[int], cuts: list[int], planned: int) -> None:
    whole = select(rows(steps), marks={}, planned_steps=planned)

    marks: dict[str, int] = {}
    sent: list[Row] = []
    for end in [*sorted(cuts), len(steps)]:
        chosen = select(rows(steps[:end]), marks=marks, planned_steps=planned)
        sent += chosen.send
        marks |= {row.metric: row.step for row in chosen.send}

    assert sent == list(whole.send)
    assert len(set(sent)) == len(sent)


@settings(deadline=None, max_examples=60)
@given(steps=STEPS)
def test_a_whole_curve_keeps_its_first_and_last_point(steps: list[int]) -> None:
    chosen = select(rows(steps), marks={}, planned_steps=None)
    assert chosen.send[0].step == steps[0]
    assert chosen.send[-1].step == steps[-1]
    assert not chosen.held


def test_a_million_steps_become_at_most_a_thousand_points_and_the_last() -> None:
    chosen = select(rows(list(range(1, 1_000_001, 10))), marks={}, planned_steps=None)
    assert 900 <= len(chosen.send) <= 1_001


def test_the_first_impossible_value_is_named_and_none_is_sent() -> None:
    series = [Row("grad_norm", 3, float("inf"), 0.0), Row("train_loss", 2, float("nan"), 0.0), Row("a", 1, 1.0, 0.0)]
    chosen = select(series, marks={}, planned_steps=None)
    assert [row.metric for row in chosen.send] == ["a"]
    assert chosen.non_finite is not None
    assert chosen.non_finite.metric == "train_loss"
