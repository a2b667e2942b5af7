"""What a machine's worker is: Prefect's own of processes, which waits for a lost server and has flow runs forked.

The invariant: a flow run is taken, told of and cancelled as Prefect's own worker does it.
"""

from __future__ import annotations

import contextlib
import logging
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import anyio
import anyio.abc
from httpx import HTTPStatusError, TransportError
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.responses import WorkerFlowRunResponse
from prefect.runner._flow_run_executor import FlowRunExecutor, FlowRunExecutorContext
from prefect.runner._process_manager import ProcessHandle
from prefect.workers.base import _is_within_polling_window
from prefect.workers.process import ProcessJobConfiguration, ProcessWorker, ProcessWorkerResult

from workers.starting import NoHooks, WarmStarter
from workers.warming import Warm

TELL_SECONDS = 60.0
"""That it asks for no work is logged so often, however often its health is asked for."""

log = logging.getLogger(__name__)


class PatientWorker(ProcessWorker):
    """Waits for a server that is out of reach, however long, where Prefect's own gives up after some minutes.

    It has flow runs forked from a warm parent where they may be, and starts interpreters for the others, as Prefect's own.
    """

    def __init__(self, pool: str, *, warm: Warm, **settings: Any) -> None:
        super().__init__(pool, **settings)
        self.warm = warm
        self.executions = FlowRunExecutorContext()
        self.freed = anyio.Event()
        self.told = -TELL_SECONDS

    @classmethod
    def __dispatch_key__(cls) -> str:
        """A name of its own: Prefect's worker stays the one that it knows for the type."""
        return "patient-process"

    async def setup(self) -> None:
        """Get ready; what tells of cancelled flow runs is the same for all."""
        await super().setup()
        await self._exit_stack.enter_async_context(self.executions)

    async def run(
        self,
        flow_run: FlowRun,
        configuration: ProcessJobConfiguration,
        task_status: anyio.abc.TaskStatus[int] | None = None,
    ) -> ProcessWorkerResult:
        """Have a flow run's process started, and wait until it has ended."""
        if not self.warm.takes(configuration):
            return await super().run(flow_run, configuration, task_status)
        starter = WarmStarter(self.warm, configuration=configuration, control=self.executions.control_channel)
        executor = self.executions.create_executor(flow_run, starter, propose_submitting=False, hook_runner=NoHooks())
        handles: list[ProcessHandle] = []
        async with anyio.create_task_group() as group:
            handles.append(await group.start(partial(_execute, executor)))
            if task_status is not None and handles[0].pid is not None:
                task_status.started(handles[0].pid)
        (handle,) = handles
        return ProcessWorkerResult(status_code=handle.returncode or 0, identifier=str(handle.pid))

    async def follow(self) -> None:
        """Ask for work as soon as a slot is free, where Prefect's own worker waits for its next look."""
        while True:
            await self.freed.wait()
            self.freed = anyio.Event()
            with contextlib.suppress(HTTPStatusError):  # the next look meets it too
                await self.get_and_submit_flow_runs()

    async def get_and_submit_flow_runs(self) -> list[FlowRun]:
        """Take what is due; nothing while the server does not answer."""
        try:
            return await super().get_and_submit_flow_runs()
        except (TransportError, HTTPStatusError) as error:
            self._wait_or_raise(error)
            return []

    def is_worker_still_polling(self, query_interval_seconds: float) -> bool:
        """Whether it has asked for work lately; Prefect's own logs each time that it has not."""
        if _is_within_polling_window(self._last_polled_time, query_interval_seconds):
            return True
        if (now := time.monotonic()) - self.told < TELL_SECONDS:
            return False
        self.told = now
        return super().is_worker_still_polling(query_interval_seconds)

    async def sync_with_backend(self) -> None:
        """Say that the worker is there, when the server can hear it."""
        try:
            await super().sync_with_backend()
        except (TransportError, HTTPStatusError) as error:
            self._wait_or_raise(error)

    async def _get_scheduled_flow_runs(self) -> list[WorkerFlowRunResponse]:
        """What is due, for as many as have a slot; Prefect's own worker asks for all that wait, and with no slot free."""
        body: dict[str, Any] = {"work_queue_names": list(self._work_queues)}
        if self._limiter is not None:
            if not (free := int(self.limiter.available_tokens)):
                return []
            body["limit"] = free + len(self._submitting_flow_run_ids)
        due = datetime.now(UTC) + timedelta(seconds=self._prefetch_seconds)
        try:
            response = await self.client.request(
                "POST",
                "/work_pools/{name}/get_scheduled_flow_runs",
                path_params={"name": self._work_pool_name},
                json={**body, "scheduled_before": str(due)},
            )
        except HTTPStatusError as error:
            if error.response.status_code == 404:  # the pool was removed
                return []
            raise
        return WorkerFlowRunResponse.model_validate_list(response.json())

    async def _propose_submitting_state(self, flow_run: FlowRun) -> None:
        """Nothing: the flow run says that it runs in the same moment."""

    def _release_limit_slot(self, flow_run_id: UUID) -> None:
        super()._release_limit_slot(flow_run_id)
        self.freed.set()

    def _wait_or_raise(self, error: TransportError | HTTPStatusError) -> None:
        refused = isinstance(error, HTTPStatusError) and error.response.status_code < 500
        if refused or not self._has_successfully_synced:
            raise error
        log.warning("Prefect's server does not answer (%s): asked again", type(error).__name__)


async def _execute(executor: FlowRunExecutor, *, task_status: anyio.abc.TaskStatus[ProcessHandle]) -> None:
    await executor.submit(task_status=task_status)
