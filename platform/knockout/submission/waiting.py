"""Waiting for work in threads, so that a signal is still heard."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from concurrent.futures import Future, wait
from threading import Event
from typing import Any

from knockout.errors import RunError

WAKE_SECONDS = 0.2


def wait_awake(futures: Collection[Future[Any]], *, until: Event | None = None) -> None:
    """Wait for all, or until an event is set, but wake now and then: on some builds of Python a wait for ever is deaf to
    signals.
    """
    while wait(futures, timeout=WAKE_SECONDS).not_done and not (until is not None and until.is_set()):
        continue


def raise_faults(endings: Iterable[object]) -> None:
    """Raise the first error among endings that says more than that a run has no result: that, the ledger knows."""
    for ending in endings:
        if isinstance(ending, BaseException) and not isinstance(ending, RunError):
            raise ending
