"""What the parts of a run take, so that plans can say how long other runs will.

The invariant: a run that computes on one core is timed by what that core spent on it, so that other work on the machine
hardly shows; a run on several, or on a GPU, by the clock on the wall.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from knockout.training.spec import Runtime

Clock = Callable[[], float]
"""Seconds since some moment."""


@dataclass(frozen=True)
class Timing:
    """Seconds of a run's parts."""

    start_seconds: float
    """From the beginning of its process to the first step: corpus, exam, network."""
    step_seconds: float
    """Of an optimizer step, on average."""
    evaluation_seconds: float
    """Of an evaluation with the checkpoint after it, on average."""


def clock(runtime: Runtime) -> Clock:
    """The clock by which a run is timed."""
    return time.process_time if runtime.device == "cpu" and runtime.threads == 1 else time.monotonic


class Stopwatch:
    """Adds up the parts of one process of a run, which is made when the process begins."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.began = self.first_step = clock()
        self.evaluating = 0.0
        self.num_evaluations = 0

    def start_steps(self) -> None:
        """The first step begins now."""
        self.first_step = self.clock()

    def add_evaluation(self, since: float) -> None:
        """An evaluation that began when the clock showed `since` has ended."""
        self.evaluating += self.clock() - since
        self.num_evaluations += 1

    def timing(self, *, num_steps: int) -> Timing | None:
        """The parts, when so many steps were taken until now; None before there was a step and an evaluation."""
        if not num_steps or not self.num_evaluations:
            return None
        stepping = self.clock() - self.first_step - self.evaluating
        return Timing(
            start_seconds=self.first_step - self.began,
            step_seconds=stepping / num_steps,
            evaluation_seconds=self.evaluating / self.num_evaluations,
        )
