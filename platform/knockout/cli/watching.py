"""What a person sees while a submission runs: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from knockout.declare.plan import Plan
from knockout.ledger.store import LedgerRun
from knockout.submission.bind import BoundRun
from knockout.submission.listener import Listener

if TYPE_CHECKING:
    from knockout.submission.tuned import Tuned

LINE_SECONDS = 15.0


class Watcher(Listener):
    """Enter it as a context while the submission runs."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.lock = threading.Lock()
        self.started = time.monotonic()
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[said]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self.tasks: dict[str, TaskID] = {}
        self.last_line: dict[str, float] = {}
        self.corpus_stage = ""
        self.to_do = self.ended = 0

    def __enter__(self) -> Watcher:
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def note(self, text: str) -> None:
        """A line of its own."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def corpus(self, stage: str, fraction: float, num_bytes: int) -> None:
        """A bar for the corpus; elsewhere one line for each stage."""
        with self.lock:
            if self.console.is_terminal:
                task = self._task("corpus", "corpus", total=1.0)
                self.bars.update(task, completed=fraction, said=stage)
            elif stage != self.corpus_stage:
                self._line(f"corpus: {stage}")
            self.corpus_stage = stage

    def planned(self, plan: Plan, runs: Sequence[BoundRun], done: Sequence[str], slots: int) -> None:
        """How much of the plan there is to do."""
        with self.lock:
            self._drop("corpus")
            wanted = {run.identity for run in runs}
            left = len(wanted) - len(set(done))
            self.to_do = self.ended + left
            doing = f"{left} to train, {slots} at a time" if left else "nothing to train"
            self._line(f"{len(wanted)} runs: {len(set(done))} reused, {doing}")

    def tuned(self, tuned: Tuned) -> None:
        """One line a search."""
        points = ", ".join(
            " ".join(f"{path} {value:.3g}" for path, value in trial.values.items())
            + (f" {trial.state}" if trial.loss is None else f" -> {trial.loss:.3f}")
            for trial in tuned.trials
        )
        chosen = ", ".join(f"{path} {value:.3g}" for path, value in tuned.chosen.items())
        edges = "".join(f" (at the {end} end of what was searched)" for end in tuned.edges.values())
        with self.lock:
            self._line(f"{tuned.variant} · {tuned.size}: tuned to {chosen}{edges}; {tuned.sentence}; tried {points}")

    def run_progress(self, run: BoundRun, step: int, train_loss: float) -> None:
        """Move the run's bar; elsewhere a line now and then."""
        total = run.cell.num_steps
        with self.lock:
            if self.console.is_terminal:
                task = self._task(run.identity, run.name, total=total)
                self.bars.update(task, completed=step, said=f"step {step:,} of {total:,}, loss {train_loss:.3f}")
            elif time.monotonic() - self.last_line.get(run.identity, self.started) > LINE_SECONDS:
                self.last_line[run.identity] = time.monotonic()
                self._line(f"{run.name}: step {step:,} of {total:,}, loss {train_loss:.3f}")

    def run_ended(self, run: BoundRun, ended: LedgerRun, reused: bool) -> None:
        """One line a run that was trained, or did not come to a result."""
        with self.lock:
            self._drop(run.identity)
            if reused:
                return
            judged = run.planned.trial is None
            self.ended += judged
            measured = ", ".join(f"{name} {value:.3f}" for name, value in sorted(ended.metrics.items()) if "loss" in name)
            said = measured if ended.state == "done" else f"{ended.state}: {ended.reason}"
            count = f"({self.ended} of {self.to_do}) " if judged else ""
            self._line(f"{count}{run.name}: {said}")

    def concluded(self, facts: dict[str, Any]) -> None:
        """Clear the bars before the verdicts."""
        with self.lock:
            for name in list(self.tasks):
                self._drop(name)

    def _task(self, key: str, title: str, *, total: float) -> TaskID:
        if key not in self.tasks:
            self.tasks[key] = self.bars.add_task(title, total=total, said="")
        return self.tasks[key]

    def _drop(self, key: str) -> None:
        if (task := self.tasks.pop(key, None)) is not None:
            self.bars.remove_task(task)

    def _line(self, text: str) -> None:
        elapsed = time.monotonic() - self.started
        self.console.print(f"[{elapsed:4.0f} s] {text}", highlight=False, markup=False, soft_wrap=True)
