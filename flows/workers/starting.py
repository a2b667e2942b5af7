"""How a worker starts a flow run from its warm parent: what Prefect's executor of flow runs asks of a starter of processes.

The invariant: Prefect sees a process as any other: with its id, its group, its exit code, and a way to cancel it.
"""

from __future__ import annotations

import math
import signal
from typing import Any

import anyio
import anyio.abc
from prefect.client.schemas.objects import FlowRun, State
from prefect.runner._control_channel import ControlChannel
from prefect.runner._process_manager import ProcessHandle
from prefect.workers.process import ProcessJobConfiguration

from knockout.errors import RunError
from knockout.services.warm import Child
from workers.warming import Started, Warm


class ForkedProcess:
    """A warm parent's child, as Prefect knows processes."""

    def __init__(self, child: Child) -> None:
        self.child = child

    @property
    def pid(self) -> int | None:
        """Of the process, which leads its group."""
        return self.child.pid

    @property
    def returncode(self) -> int | None:
        """Exit code or minus the signal; that of SIGKILL for one that ended with its parent. None while it runs."""
        return (self.child.code if self.child.code is not None else -9) if self.child.ended.is_set() else None


class Group:
    """How Prefect ends a flow run's process and everything below it."""

    wait_after_graceful_kill = True

    def __init__(self, started: Started) -> None:
        self.started = started

    def is_alive(self, pid: int) -> bool:
        """Whether it has yet to end."""
        return not self.started.child.ended.is_set()

    def graceful_kill(self, pid: int) -> None:
        """Ask it to end."""
        self.started.parent.end(self.started.child)

    def hard_kill(self, pid: int) -> None:
        """Kill it."""
        self.started.parent.signal(self.started.child, number=signal.SIGKILL)

    def close(self) -> None:
        """Nothing is held."""


class NoHooks:
    """The deployed flows have no hooks."""

    async def run_cancellation_hooks(self, flow_run: FlowRun, state: State[Any]) -> None:
        """See Prefect's HookRunner."""

    async def run_crashed_hooks(self, flow_run: FlowRun, state: State[Any]) -> None:
        """See Prefect's HookRunner."""


class WarmStarter:
    """Starts one flow run from the warm parent, and waits until its process has ended."""

    def __init__(self, warm: Warm, *, configuration: ProcessJobConfiguration, control: ControlChannel) -> None:
        self.warm = warm
        self.configuration = configuration
        self.control = control
        self.waiting = anyio.CapacityLimiter(math.inf)

    async def start(
        self, flow_run: FlowRun, task_status: anyio.abc.TaskStatus[ProcessHandle] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Start it; the handle is told once it runs. Raises RunError: it could not be started."""
        deployment = self.configuration._related_objects["deployment"]
        port, token = self.control.register(flow_run.id)
        environment = {
            **self.configuration.env,
            "PREFECT__FLOW_RUN_ID": str(flow_run.id),
            "PREFECT__ENABLE_CANCELLATION_AND_CRASHED_HOOKS": "false",
            "PREFECT__CONTROL_PORT": str(port),
            "PREFECT__CONTROL_TOKEN": token,
        }
        plain = {name: value for name, value in environment.items() if value is not None}
        request = {"flow_run": str(flow_run.id), "entrypoint": deployment.entrypoint, "environment": plain}
        started = await anyio.to_thread.run_sync(self.warm.launch, request, limiter=self.waiting)
        child = started.child
        await self._wait(child.begun.wait)
        if child.pid is None:
            raise RunError("the flow runs' parent died before it forked this one")
        process: Any = ForkedProcess(child)  # of which Prefect asks the id and the exit code
        task_status.started(ProcessHandle(process, Group(started)))
        await self._wait(child.ended.wait)

    async def _wait(self, wait: Any) -> None:
        await anyio.to_thread.run_sync(wait, limiter=self.waiting, abandon_on_cancel=True)
