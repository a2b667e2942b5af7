"""A worker of a pool: takes the pool's flow runs on this machine, each in a process of its own.

The invariant: as many trainings at a time as there are slots (GPUs, or else cores), while studies, which only wait for
their trainings, take no slot: a study can never hold up the runs that it waits for.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
from functools import partial

import anyio
from prefect.utilities.processutils import setup_signal_handlers_worker
from prefect.workers.process import ProcessWorker

from knockout.ledger.process import host_name
from knockout.services.catalog import STUDIES, TRAINING
from knockout.submission.slots import usable_slots


async def serve(*, pool: str, slots: int) -> None:
    """Work until the process is signalled; its flow runs end first."""
    studies = _worker(pool, queue=STUDIES, slots=None)
    training = _worker(pool, queue=TRAINING, slots=slots)
    async with anyio.create_task_group() as group:
        group.start_soon(partial(training.start, with_healthcheck=True, printer=_silent))
        group.start_soon(partial(studies.start, printer=_silent))


def _worker(pool: str, *, queue: str, slots: int | None) -> ProcessWorker:
    name = f"{host_name()} {os.getpid()} {queue}"
    return ProcessWorker(
        pool, work_queues=[queue], name=name, limit=slots, create_pool_if_not_found=False, heartbeat_interval_seconds=10
    )


def _silent(*_: object) -> None:
    """The log holds what goes wrong."""


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pool", required=True)
    parser.add_argument("--slots", type=int, default=None)
    given = parser.parse_args()
    setup_signal_handlers_worker(os.getpid(), "the worker", _silent)
    with contextlib.suppress(KeyboardInterrupt):  # how it is ended
        asyncio.run(serve(pool=given.pool, slots=given.slots or usable_slots()))


if __name__ == "__main__":
    main()
