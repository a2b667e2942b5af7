"""Work in stages as a person sees it: a bar on a terminal, plain lines elsewhere; on standard error, beside the output."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

LINE_SECONDS = 15.0
"""Between two lines of one stage."""


class Stages:
    """Enter it as a context, and call it with a stage's name and how much of it is done, 0 … 1."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self.started = self.stage_started = self.last_line = time.monotonic()
        self.stage = ""
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TaskProgressColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self.task = self.bars.add_task("", total=1.0, rate="")

    def __enter__(self) -> Stages:
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self.started

    def __call__(self, stage: str, fraction: float, num_bytes: int = 0) -> None:
        """Move the bar, or write a line at each stage's beginning and now and then within it."""
        now = time.monotonic()
        if begins := stage != self.stage:
            self.stage, self.stage_started = stage, now
        rate = self._rate(fraction * num_bytes, now=now)
        if self.console.is_terminal:
            if begins:
                self.bars.reset(self.task, total=1.0, description=stage)
            self.bars.update(self.task, completed=fraction, rate=rate)
        elif begins or now - self.last_line > LINE_SECONDS:
            self.last_line = now
            said = ", ".join(filter(None, [f"{fraction:.0%}", rate, self._left(fraction, now=now)]))
            self._line(stage if begins else f"{stage}: {said}")

    def _rate(self, done_bytes: float, *, now: float) -> str:
        """Text a second in this stage, where it is known."""
        elapsed = now - self.stage_started
        return f"{done_bytes / elapsed / 1e6:,.1f} MB/s" if done_bytes and elapsed else ""

    def _left(self, fraction: float, *, now: float) -> str:
        if fraction <= 0.0 or fraction >= 1.0:
            return ""
        return f"about {(now - self.stage_started) * (1.0 - fraction) / fraction:,.0f} s more"

    def _line(self, text: str) -> None:
        self.console.print(f"[{self.seconds:4.0f} s] {text}", highlight=False, markup=False, soft_wrap=True)
