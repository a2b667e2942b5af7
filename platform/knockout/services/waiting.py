"""Telling of a wait that takes longer than anyone expects.

The invariant: a wait that is over in time is not told.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

TELL_AFTER_SECONDS = 2.0
Say = Callable[[str], None]


@contextmanager
def told(line: str, *, say: Say) -> Iterator[None]:
    """Say the line, once, if the block takes longer than two seconds."""
    timer = threading.Timer(TELL_AFTER_SECONDS, say, [line])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
