"""How many runs are foreseen at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from knockout.submission import slots
from knockout.submission.slots import usable_cores, usable_slots


@pytest.mark.parametrize(
    ("gpus", "visible", "expected"),
    [(3, None, 3), (3, "1", 1), (3, "0,2", 2), (2, "0,1,2,3", 2), (3, "", usable_cores()), (0, None, usable_cores())],
)
def test_there_is_a_slot_for_each_gpu_that_may_be_used_or_else_for_each_core(
    gpus: int, visible: str | None, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for number in range(gpus):
        (tmp_path / f"0000:{number:02d}:00.0").mkdir()
    monkeypatch.setattr(slots, "GPUS", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert usable_slots() == expected


def test_a_machine_without_the_driver_has_its_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(slots, "GPUS", tmp_path / "none")
    assert usable_slots() == usable_cores()
