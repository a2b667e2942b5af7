"""Where runs execute is declared, checked, and no part of what they are."""

from __future__ import annotations

import json

import pytest

from knockout.submission.slots import usable_cores


def declare(home, *, runtime: str, batch: int = 4) -> str:
    """The small study on other devices, in a file of its own; the file's path."""
    path = home.folder.parent / "placed.yaml"
    text = (home.project / "ablations" / "small.yaml").read_text().replace("batch: 4", f"batch: {batch}")
    path.write_text(f"{text}runtime: {runtime}\n")
    return str(path)


@pytest.mark.skipif(usable_cores() < 2, reason="this machine has one core")
def test_runs_on_two_devices_are_those_of_one(home):
    code, said = home.run(declare(home, runtime="{devices: 2, strategy: fsdp}"))
    assert code == 0, said
    trained = {run.identity for run in home.runs()}
    results = [json.loads((home.folder / "runs" / name / "result.json").read_text()) for name in trained]
    assert {(result["devices"], result["strategy"]) for result in results} == {(2, "fsdp")}
    assert home.run("small", "--devices", "1")[0] == 0
    assert {run.identity for run in home.runs()} == trained
    assert {run.attempts for run in home.runs()} == {1}


def test_devices_that_do_not_divide_a_micro_batch_are_refused(home):
    code, said = home.here("check", declare(home, runtime="{devices: 3}"))
    assert code == 2
    assert "runtime.devices: 3 devices must divide the 4 windows of a micro-batch (batch 4 / accumulate 1)" in said
    code, said = home.run("small", "--devices", "8")
    assert code == 2
    assert "--devices: 8 devices must divide the 4 windows" in said


def test_more_devices_than_there_are_cores_are_refused(home):
    code, said = home.run(declare(home, runtime="{devices: 1024}", batch=1024), "--set", "tokens=327680")
    assert code == 1
    assert f"a run takes 1024 devices, and this machine has {usable_cores()} core" in said
