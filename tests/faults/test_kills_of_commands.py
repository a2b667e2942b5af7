"""Commands, and what they started, die at random moments of a study; the same command goes on until it is done."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable

import pytest
from agreeing import came_to, invariants
from commands import Home, kill, until
from killing import kill_tree


def top(home: Home, *, command: int) -> object:
    return kill(command)


def everything(home: Home, *, command: int) -> object:
    return kill_tree(home.alive())


def nursery(home: Home, *, command: int) -> object:
    return kill(home.nursery())


def halted_run(home: Home, *, command: int) -> object:
    pids = home.trainings()
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
def test_a_study_killed_at_random_moments_ends_as_one_that_was_not(home: Home, uninterrupted: Home, victim, kills):
    draw, left, commands = random.Random(kills * 1000 + len(victim.__name__)), kills, 0
    while left or "done" not in home.submission_states():
        process = home.begin("resumed")
        commands += 1
        assert commands <= kills + 2
        while left:
            before = home.steps()
            target = before + draw.randrange(1, 80)
            until(lambda target=target, process=process: home.steps() >= target or process.poll() is not None, every=0.005)
            time.sleep(draw.random() * 0.05)
            if process.poll() is not None:
                break
            left -= 1
            victim(home, command=process.pid)
            if victim in (top, everything):
                process.wait(60)
                home.until_gone()
        code, said = home.finish(process)
        assert "Traceback" not in said, said
        assert code in (0, 1, -signal.SIGKILL), said
        if code == 0 and left:
            left = 0  # it was done before its last kill
    invariants(home)
    for folder in (uninterrupted.folder / "runs").iterdir():
        assert came_to(home.folder / "runs" / folder.name) == came_to(folder)
