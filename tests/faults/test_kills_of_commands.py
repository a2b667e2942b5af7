"""Commands, and what they started, die at random moments of a study; the same command goes on until it is done."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable

import pytest
from agreeing import came_to, invariants
from killing import kill_tree
from place import Place, kill, until


def top(place: Place, *, command: int) -> object:
    return kill(command)


def everything(place: Place, *, command: int) -> object:
    return kill_tree(place.alive())


def nursery(place: Place, *, command: int) -> object:
    return kill(place.nursery())


def halted_run(place: Place, *, command: int) -> object:
    pids = place.trainings()
    for pid in pids[:1]:
        kill(pid, signal.SIGSTOP)
        time.sleep(0.05)
        kill(pid)
    return pids


VICTIMS: dict[str, tuple[Callable[..., object], int]] = {
    "the command": (top, 2),
    "everything at once": (everything, 2),
    "the parent of the runs": (nursery, 3),
    "a run": (halted_run, 3),
}
"""Whom, and how many times."""


@pytest.mark.parametrize(("victim", "kills"), VICTIMS.values(), ids=VICTIMS.keys())
def test_a_study_killed_at_random_moments_ends_as_one_that_was_not(place: Place, uninterrupted: Place, victim, kills):
    draw, left, commands = random.Random(kills * 1000 + len(victim.__name__)), kills, 0
    while left or "done" not in place.states():
        process = place.begin("resumed")
        commands += 1
        assert commands <= kills + 2
        while left:
            before = place.steps()
            target = before + draw.randrange(1, 80)
            until(lambda target=target, process=process: place.steps() >= target or process.poll() is not None, every=0.005)
            time.sleep(draw.random() * 0.05)
            if process.poll() is not None:
                break
            left -= 1
            victim(place, command=process.pid)
            if victim in (top, everything):
                process.wait(60)
                until(lambda: place.alive() == {}, seconds=15)
        code, said = place.finish(process)
        assert "Traceback" not in said, said
        assert code in (0, 1, -signal.SIGKILL), said
        if code == 0 and left:
            left = 0  # it was done before its last kill
    invariants(place)
    for folder in (uninterrupted.folder / "runs").iterdir():
        assert came_to(place.folder / "runs" / folder.name) == came_to(folder)
