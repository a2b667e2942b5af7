"""What is remembered of how long runs take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from knockout.declare.document import Document
from knockout.declare.settings import defaults
from knockout.errors import WorkspaceError
from knockout.ledger import speeds
from knockout.ledger.identity import meaning
from knockout.ledger.speeds import CALIBRATION, NEWEST, Speed, recall, remember, shape
from knockout.ledger.store import Ledger
from knockout.ledger.workspace import open_workspace

TINY: dict[str, Any] = {
    "width": 16, "heads": 2, "depth": 2, "context": 16, "vocabulary": 32, "batch": 4, "tokens": 6400, "learning_rate": 0.005,
}  # fmt: skip


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = Ledger(open_workspace(tmp_path / "home"))
    yield opened
    opened.close()


def meant(*, seed: int = 0, exam: int = 256, corpus: str = "one", **changes: Any) -> dict[str, Any]:
    architecture, recipe = defaults().over(Document({**TINY, **changes}, {})).resolve()
    return meaning(architecture=architecture, recipe=recipe, corpus=corpus, seed=seed, evaluation={"tokens": exam})


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1}, {"corpus": "another"}, {"tokens": 64_000}, {"learning_rate": 0.1}, {"warmup_steps": 3},
        {"init": {"std": 0.3}}, {"evaluations": 2}, {"schedule": {"kind": "constant"}}, {"clip": None},
    ],
    ids=str,
)  # fmt: skip
def test_what_changes_no_computation_leaves_the_shape(changes: dict[str, Any]):
    assert shape(meant(**changes)) == shape(meant())


@pytest.mark.parametrize(
    "changes",
    [
        {"depth": 3}, {"width": 32}, {"context": 8}, {"batch": 8}, {"accumulate": 2}, {"precision": "bf16"}, {"exam": 512},
        {"attention": {"causal": False}}, {"ffn": {"kind": "moe", "experts": 4, "top_k": 1}}, {"vocabulary": 64},
        {"dropout": 0.1}, {"packing": {"kind": "documents"}},
    ],
    ids=str,
)  # fmt: skip
def test_what_changes_the_computation_is_another_shape(changes: dict[str, Any]):
    assert shape(meant(**changes)) != shape(meant())


def test_the_newest_calibration_counts_until_a_run_has_ended(ledger: Ledger):
    assert recall(ledger, shapes=["a"]) == {}
    remember(ledger, shape="a", origin=CALIBRATION, speed=Speed(9.0, 9.0, 9.0))
    remember(ledger, shape="a", origin=CALIBRATION, speed=Speed(1.0, 2.0, 3.0))
    remember(ledger, shape="b", origin=CALIBRATION, speed=Speed(5.0, 5.0, 5.0))
    assert recall(ledger, shapes=["a", "c"]) == {"a": Speed(1.0, 2.0, 3.0)}
    remember(ledger, shape="a", origin="run-1", speed=Speed(0.5, 4.0, 3.5))
    assert recall(ledger, shapes=["a"]) == {"a": Speed(0.5, 4.0, 3.5)}


def test_of_several_runs_the_median_of_the_newest_counts_part_by_part(ledger: Ledger):
    for number in range(5):
        remember(ledger, shape="a", origin=f"old-{number}", speed=Speed(100.0, 100.0, 100.0))
    for number in range(NEWEST):
        remember(ledger, shape="a", origin=f"run-{number}", speed=Speed(number, 10.0 * number, 8.0 - number))
    assert recall(ledger, shapes=["a"]) == {"a": Speed(4.0, 40.0, 4.0)}


def test_figures_of_other_versions_or_machines_are_not_used(ledger: Ledger, monkeypatch: pytest.MonkeyPatch):
    for part in ("versions", "processor"):
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(speeds, part, lambda: "another")
            remember(ledger, shape="a", origin="run", speed=Speed(1.0, 1.0, 1.0))
            assert recall(ledger, shapes=["a"])
        assert recall(ledger, shapes=["a"]) == {}


def test_the_seconds_of_a_run_are_its_parts():
    assert Speed(0.5, 0.01, 0.2).run_seconds(num_steps=300, num_evaluations=4) == pytest.approx(0.5 + 3.0 + 0.8)


def test_a_database_that_is_none_is_told_in_one_sentence(tmp_path: Path):
    ledger = Ledger(open_workspace(tmp_path))
    ledger.close()
    ledger.workspace.ledger.write_bytes(b"no database" * 1000)
    for suffix in ("-wal", "-shm"):
        ledger.workspace.ledger.with_name(ledger.workspace.ledger.name + suffix).unlink(missing_ok=True)
    with pytest.raises(WorkspaceError, match=r"the ledger .*ledger\.db is damaged \(file is not a database\): put a copy"):
        recall(ledger, shapes=["a"])
    ledger.close()
