"""A worker of a pool: takes the pool's flow runs on this machine, each in a process of its own.

The invariant: as many trainings at a time as there are slots (GPUs, or else cores), while studies, which only wait for
their trainings, take no slot: a study can never hold up the runs that it waits for.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import sys
from functools import partial
from pathlib import Path

import anyio
from httpx import HTTPStatusError, TransportError
from prefect.client.schemas.objects import FlowRun
from prefect.utilities.processutils import setup_signal_handlers_worker
from prefect.workers.process import ProcessWorker

from knockout.ledger.process import host_name
from knockout.services.catalog import STUDIES, TRAINING
from knockout.submission.slots import usable_slots

log = logging.getLogger(__name__)


class PatientWorker(ProcessWorker):
    """Waits for a server that is out of reach, however long, where Prefect's own gives up after some minutes."""

    @classmethod
    def __dispatch_key__(cls) -> str:
        """A name of its own: Prefect's worker stays the one that it knows for the type."""
        return "patient-process"

    async def get_and_submit_flow_runs(self) -> list[FlowRun]:
        """Take what is due; nothing while the server does not answer."""
        try:
            return await super().get_and_submit_flow_runs()
        except (TransportError, HTTPStatusError) as error:
            self._wait_or_raise(error)
            return []

    async def sync_with_backend(self) -> None:
        """Say that the worker is there, when the server can hear it."""
        try:
            await super().sync_with_backend()
        except (TransportError, HTTPStatusError) as error:
            self._wait_or_raise(error)

    def _wait_or_raise(self, error: TransportError | HTTPStatusError) -> None:
        refused = isinstance(error, HTTPStatusError) and error.response.status_code < 500
        if refused or not self._has_successfully_synced:
            raise error
        log.warning("Prefect's server does not answer (%s): asked again", type(error).__name__)


async def serve(*, pool: str, slots: int) -> None:
    """Work until the process is signalled; its flow runs end first."""
    studies = _worker(pool, queue=STUDIES, slots=None)
    training = _worker(pool, queue=TRAINING, slots=slots)
    async with anyio.create_task_group() as group:
        group.start_soon(partial(training.start, with_healthcheck=True, printer=_silent))
        group.start_soon(partial(studies.start, printer=_silent))
        group.start_soon(partial(_tend, pool))


async def _tend(pool: str) -> None:
    """See to it, now and then, that what was lost with another worker goes on."""
    from tending import TEND_SECONDS, tend  # the folder is on no path before `main`

    while True:
        await anyio.sleep(TEND_SECONDS)
        await anyio.to_thread.run_sync(partial(tend, pool=pool))


def _worker(pool: str, *, queue: str, slots: int | None) -> PatientWorker:
    name = f"{host_name()} {os.getpid()} {queue}"
    return PatientWorker(
        pool, work_queues=[queue], name=name, limit=slots, create_pool_if_not_found=False, heartbeat_interval_seconds=10
    )


def _silent(*_: object) -> None:
    """The log holds what goes wrong."""


def main() -> None:
    """Read the command line and serve."""
    sys.path.insert(0, str(Path(__file__).parent))  # as Prefect does for the flows that it loads
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pool", required=True)
    parser.add_argument("--slots", type=int, default=None)
    given = parser.parse_args()
    setup_signal_handlers_worker(os.getpid(), "the worker", _silent)
    with contextlib.suppress(KeyboardInterrupt):  # how it is ended
        asyncio.run(serve(pool=given.pool, slots=given.slots or usable_slots()))


if __name__ == "__main__":
    main()
