"""The road without Prefect: the same steps in plain threads, which only wait for the processes that train."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from knockout.submission.bind import BoundRun
from knockout.submission.concluding import Concluding
from knockout.submission.road import Road
from knockout.submission.waiting import raise_faults, wait_awake


def submit(road: Road) -> Concluding:
    """Walk a road.

    Raises:
        KnockoutError: what a step of the road raises.
    """
    road.prepare()
    with ThreadPoolExecutor(max_workers=road.hands.num_threads) as pool:
        searches = _all(road, [pool.submit(road.tune, cell) for cell in road.to_tune])
        road.raise_if_stopped()
        if road.is_over:
            return road.conclude()
        for searched in searches:
            searched.result()
        _train_all(road, pool, road.bind())
        while road.look_again():
            _train_all(road, pool, road.bind())
        _train_all(road, pool, road.pruned())
    return road.conclude()


def _train_all(road: Road, pool: ThreadPoolExecutor, runs: Sequence[BoundRun]) -> None:
    trained = _all(road, [pool.submit(road.train, run) for run in runs])
    raise_faults(future.exception() for future in trained)
    road.raise_if_stopped()


def _all(road: Road, futures: list[Future[Any]]) -> list[Future[Any]]:
    """The futures, once all have ended; when the wait is interrupted, they are asked to stop."""
    try:
        wait_awake(futures)
    except BaseException:
        road.interrupt()
        raise
    return futures
