"""What ends work before it is done, and why.

The invariant: the first that ends the work says why; whatever comes later changes nothing.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Literal

from knockout.ledger.process import TOLD, Owner


@dataclass(frozen=True)
class Ending:
    """The state that unfinished work comes to, and the reason."""

    state: Literal["cancelled", "timed-out", "failed"]
    reason: str


BY_USER = Ending("cancelled", "stopped by the user")


def handed_on(owner: Owner) -> Ending:
    """That of work whose process was told to end, and which another process may go on with."""
    return Ending("failed", f"{owner} {TOLD}")


class Stop(threading.Event):
    """Set when the work is to end; each run then stops after its step, with a checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self._first = threading.Lock()
        self.ending = BY_USER
        """Why, once it is set."""

    def end(self, ending: Ending) -> None:
        """Set it for a reason."""
        with self._first:
            if not self.is_set():
                self.ending = ending
                self.set()
