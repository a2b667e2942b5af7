"""Holding a run: the lease is renewed in the background until the work is over, and its loss is noticed.

The invariant: who has lost a lease learns it within a heartbeat of being able to; a ledger that cannot be reached for a
while takes no lease away.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType

from knockout.errors import WorkspaceError
from knockout.ledger.leases import HEARTBEAT_SECONDS
from knockout.ledger.process import Owner
from knockout.ledger.store import Ledger

log = logging.getLogger(__name__)


def unknown() -> None:
    """How far work is that does not say so."""


class Lease:
    """A run that an owner has claimed; enter it for as long as there is work on the run."""

    def __init__(self, ledger: Ledger, identity: str, *, owner: Owner, step: Callable[[], int | None] = unknown) -> None:
        self.ledger = ledger
        self.identity = identity
        self.owner = owner
        self.step = step
        """How far the work is; told with each renewal, for whoever looks from another machine."""
        self.lost = threading.Event()
        """Set when somebody else may hold the run."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew, name=f"lease of {identity}", daemon=True)

    def __enter__(self) -> Lease:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _renew(self) -> None:
        while not self._over.wait(HEARTBEAT_SECONDS):
            try:
                if not self.ledger.beat(self.identity, owner=self.owner, step=self.step()):
                    self.lost.set()
                    return
            except WorkspaceError as unreachable:
                log.debug("%s; the lease is renewed at the next heartbeat", unreachable)
