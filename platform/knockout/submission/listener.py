"""What a submission tells whoever watches it. The base listens to everything and says nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from knockout.declare.plan import Plan
from knockout.ledger.store import LedgerRun
from knockout.submission.bind import BoundRun

if TYPE_CHECKING:
    from knockout.submission.tuned import Tuned


class Listener:
    """Every method may be called from any thread."""

    def corpus(self, stage: str, fraction: float, num_bytes: int) -> None:
        """Preparation of the corpus is at a fraction, from 0 to 1, of a stage that goes through as many bytes of text."""

    def planned(self, plan: Plan, runs: Sequence[BoundRun], done: Sequence[str], slots: int) -> None:
        """The runs are known, and which identities already have a result."""

    def tuned(self, tuned: Tuned) -> None:
        """A cell's search is over."""

    def run_started(self, run: BoundRun) -> None:
        """A run has a slot."""

    def run_progress(self, run: BoundRun, step: int, train_loss: float) -> None:
        """A run is at a step."""

    def run_ended(self, run: BoundRun, ended: LedgerRun, reused: bool) -> None:
        """A run has come to an end."""

    def concluded(self, facts: dict[str, Any]) -> None:
        """Everything is judged; `facts` is what the report says."""

    def note(self, text: str) -> None:
        """Something that a person should know."""
