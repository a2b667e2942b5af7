"""A worker of a pool: takes the pool's flow runs on this machine, each in a process of its own.

The invariant: as many trainings at a time as there are slots (GPUs, or else cores), while studies, which only wait for
their trainings, take no slot: a study can never hold up the runs that it waits for.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from prefect.utilities.processutils import setup_signal_handlers_worker

from knockout.ledger.process import host_name
from knockout.services.catalog import STUDIES, TRAINING
from knockout.submission.slots import usable_slots

if TYPE_CHECKING:
    from warming import Warm
    from working import PatientWorker


async def serve(*, pool: str, slots: int, warm: Warm) -> None:
    """Work until the process is signalled."""
    studies = _worker(pool, queue=STUDIES, slots=None, warm=warm)
    training = _worker(pool, queue=TRAINING, slots=slots, warm=warm)
    async with anyio.create_task_group() as group:
        group.start_soon(partial(training.start, with_healthcheck=True, printer=_silent))
        group.start_soon(partial(studies.start, printer=_silent))
        group.start_soon(training.follow)
        group.start_soon(partial(_tend, pool))


async def _tend(pool: str) -> None:
    """See to it, now and then, that what was lost with another worker goes on."""
    from tending import TEND_SECONDS, tend

    while True:
        await anyio.sleep(TEND_SECONDS)
        await anyio.to_thread.run_sync(partial(tend, pool=pool))


def _worker(pool: str, *, queue: str, slots: int | None, warm: Warm) -> PatientWorker:
    from working import PatientWorker  # the folder is on no path before `main`

    return PatientWorker(
        pool,
        warm=warm,
        work_queues=[queue],
        name=f"{host_name()} {os.getpid()} {queue}",
        limit=slots,
        create_pool_if_not_found=False,
        heartbeat_interval_seconds=10,
    )


def _silent(*_: object) -> None:
    """The log holds what goes wrong."""


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pool", required=True)
    parser.add_argument("--slots", type=int, default=None)
    given = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))  # as Prefect does for the flows that it loads
    from warming import Warm

    setup_signal_handlers_worker(os.getpid(), "the worker", _silent)
    warm = Warm()
    with contextlib.suppress(KeyboardInterrupt):  # how it is ended
        asyncio.run(serve(pool=given.pool, slots=given.slots or usable_slots(), warm=warm))
    warm.close()


if __name__ == "__main__":
    main()
