"""What a submission does each second while it works: renew its sign of life, heed limits, show and mirror progress.

The invariant: nothing here can end the work but a limit or a request to stop; a ledger that cannot be reached now is
asked again at the next tick.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from types import TracebackType

from knockout.errors import WorkspaceError
from knockout.ledger.leases import HEARTBEAT_SECONDS
from knockout.ledger.process import Owner
from knockout.ledger.stops import wanted_stop
from knockout.ledger.store import Ledger
from knockout.ledger.tables import LedgerLost
from knockout.submission.bind import BoundRun
from knockout.submission.listener import Listener
from knockout.submission.mirroring import Mirroring
from knockout.training.progress import read_progress
from knockout.training.stop import Ending, Stop

TICK_SECONDS = 1.0

log = logging.getLogger(__name__)


class Ticker:
    """Ticks in a thread of its own while it is entered. `active` are the runs in work, by identity."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        submission: str,
        owner: Owner,
        stop: Stop,
        until: float | None,
        limit: str,
        active: Mapping[str, BoundRun],
        listener: Listener,
        mirroring: Mirroring,
    ) -> None:
        self.ledger = ledger
        self.submission = submission
        self.owner = owner
        self.stop = stop
        self.until = until
        """On the monotonic clock, when the time of the work is over; None: never."""
        self.limit = limit
        """What is over then, in words."""
        self.active = active
        self.listener = listener
        self.mirroring = mirroring
        self.over = threading.Event()
        self.beaten = time.monotonic()
        self.replaced = threading.Event()
        """Set when another process goes on with the submission: this one was taken for dead, and has no more say in it."""
        self.thread = threading.Thread(target=self._work, name="ticker", daemon=True)

    def __enter__(self) -> Ticker:
        self.thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.over.set()
        self.thread.join()

    def _work(self) -> None:
        while not self.over.wait(TICK_SECONDS):
            self._heed()
            for identity, run in list(self.active.items()):
                if (progress := read_progress(self.ledger.workspace.run(identity))) is not None:
                    self.listener.run_progress(run, *progress)
                self.mirroring.metrics(run)

    def _heed(self) -> None:
        """End the work when its time is over, or when somebody asked for it; and say that it still goes on."""
        if self.until is not None and time.monotonic() > self.until:
            self.stop.end(Ending("timed-out", self.limit))
        try:
            if (wanted := wanted_stop(self.ledger, submission=self.submission)) is not None:
                self.stop.end(Ending(wanted.state, wanted.reason))
            if time.monotonic() - self.beaten > HEARTBEAT_SECONDS:
                self._beat()
                self.beaten = time.monotonic()
        except LedgerLost as lost:
            self.stop.end(Ending("failed", str(lost)))
        except WorkspaceError as unreachable:
            log.debug("%s; the next tick tries again", unreachable)

    def _beat(self) -> None:
        if self.ledger.beat_submission(self.submission, owner=self.owner):
            return
        known = self.ledger.submission(self.submission)
        if known is not None and known.state == "running" and known.owner != self.owner:
            self.replaced.set()
            self.stop.end(Ending("cancelled", f"{known.owner} goes on with it"))
