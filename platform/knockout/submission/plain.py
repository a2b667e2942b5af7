"""The road without Prefect: the same steps in plain threads, which only wait for the processes that train."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait

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
    return road.conclude()
