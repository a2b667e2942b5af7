"""The road without Prefect: the same steps in plain threads, which only wait for the processes that train."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, wait

from knockout.errors import RunError
from knockout.submission.concluding import Concluding
from knockout.submission.road import Road


def submit(road: Road) -> Concluding:
    """Walk a road.

    Raises:
        KnockoutError: what a step of the road raises.
    """
    runs = road.prepare()
    with ThreadPoolExecutor(max_workers=road.num_slots) as pool:
        futures = [pool.submit(road.train, run) for run in runs]
        try:
            wait(futures)
        except BaseException:
            road.limits.stop.set()
            raise
    raise_faults(future.exception() for future in futures)
    return road.conclude()


def raise_faults(endings: Iterable[object]) -> None:
    """Raise the first error among endings that says more than that a run has no result: that, the ledger knows."""
    for ending in endings:
        if isinstance(ending, BaseException) and not isinstance(ending, RunError):
            raise ending
