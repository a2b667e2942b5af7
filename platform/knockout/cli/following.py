"""What `submit --wait` shows until the verdicts: a line when a worker begins the study, and one for each run that ends.

The invariant: everything shown is read from the ledger, so it is the same on whatever machines the runs are trained.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from knockout.ledger.process import Owner
from knockout.ledger.store import PRUNED, Ledger, LedgerRun, Submission

LOOK_SECONDS = 3.0
"""The runs are read so often: a study may have thousands."""


@dataclass
class Follower:
    """Tells what is new of a submission, each thing once."""

    ledger: Ledger
    submission: str
    pool: str
    begun: float = field(default_factory=time.monotonic)
    looked: float = 0.0
    waits: bool = False
    owner: Owner | None = None
    told: set[str] = field(default_factory=set)

    def look(self, known: Submission | None) -> None:
        """Print what is new since the last look, now and then, and whatever is left once the submission has ended."""
        if known is None:
            if not self.waits:
                self.waits = True
                _line(f"waiting for a worker of pool '{self.pool}'", since=self.begun)
            return
        if known.owner is not None and known.owner != self.owner:
            self.owner = known.owner
            _line(f"{known.owner} works on it", since=self.begun)
        if known.state == "running" and time.monotonic() - self.looked < LOOK_SECONDS:
            return
        self._tell_runs(reused_before=known.created)
        self.looked = time.monotonic()

    def _tell_runs(self, *, reused_before: float) -> None:
        names = {identity: f"{variant} · {size} · s{seed}" for identity, variant, size, seed in self._asked()}
        new = [run for run in self.ledger.runs(names.keys() - self.told) if run.finished or run.state == PRUNED]
        reused = [run for run in new if (run.ended or 0.0) < reused_before]
        if reused:
            _line(f"{len(reused)} of {len(names)} runs are there already", since=self.begun)
            self.told |= {run.identity for run in reused}
        for run in sorted(new, key=lambda run: run.ended or 0.0):
            if run.identity not in self.told:
                self.told.add(run.identity)
                _line(f"({len(self.told)} of {len(names)}) {names[run.identity]}: {_ending(run)}", since=self.begun)

    def _asked(self) -> list[tuple[str, str, str, int]]:
        return self.ledger.asked(self.submission)


def _ending(run: LedgerRun) -> str:
    """The losses of a run that is done, or else why it is not."""
    if run.state != "done":
        return f"{run.state}: {run.reason}" if run.reason else run.state
    return ", ".join(f"{name} {value:.3f}" for name, value in sorted(run.metrics.items()) if "loss" in name) or run.state


def _line(text: str, *, since: float) -> None:
    print(f"[{time.monotonic() - since:4.0f} s] {text}", flush=True)
