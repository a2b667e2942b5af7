"""Importing large libraries in less time.

The invariant: the collector of garbage is as it was before, once the libraries are there.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Imports make hundreds of thousands of objects and no garbage: to look for it is a fifth to a quarter of their time."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()
