"""Training processes die at random moments, again and again; in the end nothing shows that they ever did."""

from __future__ import annotations

import pytest
from agreeing import came_to
from killing import KILLS_IN_CI, PER_RUN, Laboratory, moments

from knockout.training.result import discard

NUM_STEPS = 400


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        kills = metafunc.config.getoption("--kills", default=KILLS_IN_CI)
        metafunc.parametrize("seed", range(-(-kills // PER_RUN)))


@pytest.fixture(scope="module")
def undisturbed(laboratory: Laboratory) -> dict:
    """The same run, never killed: what a run comes to does not depend on its folder's history."""
    name = laboratory.ask(seed=0)
    assert laboratory.bring(name).run.state == "done"
    return came_to(laboratory.ledger.workspace.run(name))


def test_a_run_killed_at_random_moments_ends_as_one_that_was_not(laboratory: Laboratory, undisturbed: dict, seed: int):
    name = laboratory.ask(seed=0)
    folder = laboratory.ledger.workspace.run(name)
    start_again(laboratory, name)
    states = []
    for number, moment in enumerate(moments(seed, count=PER_RUN, steps=NUM_STEPS)):
        ended = laboratory.kill_at(name, moment, halted=number % 2 == 1)
        states.append(ended.run.state)
        checkpoints = list(folder.glob("checkpoints/[0-9]*.pt"))
        assert len(checkpoints) <= 3  # two, and a third where it died before it dropped the oldest
        if ended.run.state == "done":  # it was quicker
            assert came_to(folder) == undisturbed
            start_again(laboratory, name)
            continue
        assert ended.run.state == "failed"
        assert ended.run.reason is not None
        assert "was ended by SIGKILL" in ended.run.reason
    assert laboratory.bring(name).run.state == "done"
    assert came_to(folder) == undisturbed
    print(f"seed {seed}: {states.count('failed')} kills")


def start_again(laboratory: Laboratory, name: str) -> None:
    """Take the result of a run away, so that it is trained from its start."""
    laboratory.ledger.reopen(name, reason="it is trained again")
    discard(laboratory.ledger.workspace.run(name))
