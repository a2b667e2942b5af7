"""How many runs are foreseen at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from knockout.errors import RunError
from knockout.submission import slots
from knockout.submission.slots import host_slot, slot_queue, usable_cores, usable_slots


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


def visible(slot: slots.Slot) -> str:
    return slot.environment["CUDA_VISIBLE_DEVICES"]


def test_a_run_on_several_gpus_has_them_to_itself(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    free = slot_queue(2, num_gpus=4, devices=2)
    assert [visible(free.get()) for _ in range(2)] == ["4,5", "6,7"]


def test_a_run_that_takes_more_than_the_machine_has_is_refused():
    with pytest.raises(RunError, match=r"a run takes 8 devices, and this machine has 4 GPUs: give `--devices 4` or less"):
        slot_queue(1, num_gpus=4, devices=8)


def test_gpus_of_this_machine_are_held_all_at_once_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(slots.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(slots, "POLL_SECONDS", 0.0)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    asleep = []

    def sleep(_: float) -> None:
        asleep.append(True)
        with host_slot(num_gpus=4) as meanwhile:  # what the waiting one has not got all of, it holds none of
            assert visible(meanwhile) == "3"
        first.__exit__(None, None, None)

    first = host_slot(num_gpus=4, devices=3)
    assert visible(first.__enter__()) == "0,1,2"
    monkeypatch.setattr(slots.time, "sleep", sleep)
    with host_slot(num_gpus=4, devices=2) as second:
        assert visible(second) == "0,1"
    assert asleep == [True]
