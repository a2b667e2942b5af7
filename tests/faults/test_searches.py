"""A search, and a study that takes a further look, are killed on the way: the same trials, the same winner, none twice."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agreeing import came_to, invariants
from commands import Home, kill, opened, until
from killing import kill_tree

KEYS = ("number", "values", "state", "loss", "reason", "last", "extends")
FOUND = ("claim", "outcome", "effect", "interval", "p", "num_seeds")
"""Of a verdict what does not say what it cost."""
WITHOUT = {"tuned": (), "settled": ("--settle",)}


@pytest.fixture
def never_killed(tmp_path: Path, project: Path) -> Iterator[Home]:
    yield from opened(tmp_path / "never-killed", project=project)


def searched(home: Home) -> dict[str, list[tuple[Any, ...]]]:
    """What the search of each variant came to, apart from its cost."""
    found = home.facts("tuned")["study"]["tuned"]
    return {one["variant"]: [tuple(trial[key] for key in KEYS) for trial in one["trials"]] for one in found}


@pytest.mark.parametrize("study", WITHOUT)
def test_a_study_killed_on_its_way_finds_what_one_that_was_not_finds(home: Home, never_killed: Home, study: str):
    code, said = never_killed.run(study, *WITHOUT[study])
    assert code == 0, said
    draw, left = random.Random(study), 1
    while "done" not in home.submission_states():
        process = home.begin(study, *WITHOUT[study])
        if left:
            target = home.steps() + draw.randrange(1, 20_000)
            until(lambda target=target, process=process: home.steps() >= target or process.poll() is not None)
            if process.poll() is None:
                kill(process.pid) if study == "tuned" else kill_tree(home.alive())
            left -= 1
        home.finish(process)
        home.until_gone()
    invariants(home)
    folders = {folder.name for folder in (home.folder / "runs").iterdir()}
    for name in folders:
        if (home.folder / "runs" / name / "result.json").exists():
            assert came_to(home.folder / "runs" / name) == came_to(never_killed.folder / "runs" / name)
    before, after = (one.facts(study, *WITHOUT[study]) for one in (never_killed, home))
    assert [run["identity"] for run in after["runs"]] == [run["identity"] for run in before["runs"]]
    found = [[tuple(verdict[key] for key in FOUND) for verdict in one["verdicts"]] for one in (before, after)]
    assert found[0] == found[1]
    if study == "tuned":
        assert searched(home) == searched(never_killed)
    else:
        assert len(after["study"]["seeds"]) == 4, "the further look was not taken, so it was not tested"
