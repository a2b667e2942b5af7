"""A worker of a pool: takes the pool's flow runs on this machine, each in a process of its own.

The invariant: as many trainings at a time as there are slots (GPUs, or else cores), while studies, which only wait for
their trainings, take no slot: a study can never hold up the runs that it waits for.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from prefect.events.worker import EventsWorker
from prefect.logging.handlers import APILogWorker

from knockout.ledger.process import host_name
from knockout.services.catalog import STUDIES, TRAINING
from knockout.submission.slots import usable_slots

if TYPE_CHECKING:
    from workers.warming import Warm
    from workers.working import PatientWorker

LET_GO_SECONDS = 10.0
"""So long Prefect's workers may take to let go of their connections and flow runs."""
LAST_WORDS_SECONDS = 2.0
"""So long events and log lines may take to reach a server that may be gone."""


async def serve(*, pool: str, slots: int, warm: Warm) -> None:
    """Work until the process is signalled.

    Prefect's workers are tasks that are cancelled once. A scope of anyio cancels every step of their end as well, and one
    that waits for its connection then leaves an exception that is its own context, which `contextlib` walks for ever.
    """
    studies = _worker(pool, queue=STUDIES, slots=None, warm=warm)
    training = _worker(pool, queue=TRAINING, slots=slots, warm=warm)
    work = [
        training.start(with_healthcheck=True, printer=_silent),
        studies.start(printer=_silent),
        training.follow(),
        _tend(pool),
        _signalled(),
    ]
    tasks = [asyncio.create_task(one) for one in work]
    ended, going_on = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in going_on:
        task.cancel()
    await asyncio.wait(going_on, timeout=LET_GO_SECONDS)
    for task in ended:
        task.result()


async def _signalled() -> None:
    """Wait for the first signal; the second one ends the process."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            break
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


async def _tend(pool: str) -> None:
    """See to it, now and then, that what was lost with another worker goes on."""
    from workers.tending import TEND_SECONDS, tend

    while True:
        await anyio.sleep(TEND_SECONDS)
        # A server that hangs is not waited for at the end; what the ledger is told, it is told whole.
        await anyio.to_thread.run_sync(partial(tend, pool=pool), abandon_on_cancel=True)


def _worker(pool: str, *, queue: str, slots: int | None, warm: Warm) -> PatientWorker:
    from workers.working import PatientWorker  # the folder is on no path before `main`

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
    from workers.warming import Warm

    warm = Warm()
    asyncio.Runner().run(serve(pool=given.pool, slots=given.slots or usable_slots(), warm=warm))  # `_leave` closes it
    warm.close()
    _leave()


def _leave() -> None:
    """End; what Prefect has not been told by now it is not told, where its own end waits for each line as for a server."""
    for service in (EventsWorker, APILogWorker):
        service.drain_all(timeout=LAST_WORDS_SECONDS)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
