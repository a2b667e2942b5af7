"""`knockout bench --pool`: what a run costs on a work pool, each part of the road apart.

The invariant: server, worker, submissions and ledger are those of `up` and `submit`, in a workspace of their own; only the
runs rest instead of training.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from knockout.ledger.store import Ledger
    from knockout.ledger.workspace import Workspace
    from knockout.services.catalog import Server
    from knockout.services.usage import Usage
    from knockout.submission.requests import Request

SLOTS = 2
FIRST_SEED = 900_000
BEGIN_SECONDS = 300.0
POLL_SECONDS = 0.1
SETTLE_SECONDS = 3.0
"""So long after the last run its process, and the requests that tell of it, have ended."""
REQUEST = b' HTTP/1.1"'
"""In each line of the server's log that tells of a request."""


@dataclass(frozen=True)
class PoolCost:
    """What a submission cost beside its runs' rest; processor time in seconds a run."""

    runs: int
    worker_cpu_seconds: float
    """The worker itself."""
    runs_cpu_seconds: float
    """What the worker starts for the runs: their flow runs, and the processes that would train."""
    study_cpu_seconds: float
    """The study's flow run, without its start."""
    server_cpu_seconds: float
    """Prefect's server."""
    requests: float
    """Requests to the server, a run."""
    fixed_cpu_seconds: float
    """Processor time of the study's flow run until it had planned its runs, once."""
    seconds: float
    """Of the whole submission, on the clock."""
    worker_bytes: int
    """The most memory that the worker had so far."""
    warm_bytes: int
    """The most memory that its warm parent had so far."""
    study_bytes: int
    """The most memory that the study's flow run had."""

    @property
    def cpu_seconds(self) -> float:
        """Processor time of the orchestrator, a run: all but the server."""
        return self.worker_cpu_seconds + self.runs_cpu_seconds + self.study_cpu_seconds


@dataclass(frozen=True)
class Spent:
    """What the parts have used up to a moment."""

    worker: float
    below: float
    """Everything that the worker started, studies too."""
    server: float
    requests: int


@dataclass(frozen=True)
class Running:
    """A service of the bench."""

    pid: int
    """Of its guard."""
    url: str
    log: Path


class Bench:
    """A server and a worker whose runs rest; enter `opened` for one."""

    def __init__(self, workspace: Workspace, *, prefect: Running, worker: Running) -> None:
        from knockout.ledger.store import Ledger

        self.workspace = workspace
        self.prefect = prefect
        self.worker = worker
        self.ledger: Ledger = Ledger(workspace)

    def measure(self, num_runs: int, *, first_seed: int) -> PoolCost:
        """Bring a study of `num_runs` resting runs, two for each seed, to its report; beside what was measured before."""
        from knockout.cli.flows import PATIENT, load_flow

        request = _request(num_runs, first_seed=first_seed, workspace=self.workspace)
        before, started = self._spent(), time.monotonic()
        load_flow("pools.submitting", server=self.prefect.url, retries=PATIENT).hand(request, workspace=self.workspace)
        planned, study = self._await_end(request.submission)
        seconds = time.monotonic() - started
        time.sleep(SETTLE_SECONDS)
        after, (worker, warm) = self._spent(), self._memory()
        whole = study.cpu_seconds + study.children_cpu_seconds
        return PoolCost(
            runs=num_runs,
            worker_cpu_seconds=(after.worker - before.worker) / num_runs,
            runs_cpu_seconds=(after.below - before.below - whole) / num_runs,
            study_cpu_seconds=(whole - planned) / num_runs,
            server_cpu_seconds=(after.server - before.server) / num_runs,
            requests=(after.requests - before.requests) / num_runs,
            fixed_cpu_seconds=planned,
            seconds=seconds,
            worker_bytes=worker,
            warm_bytes=warm,
            study_bytes=study.peak_bytes,
        )

    def _await_end(self, submission: str) -> tuple[float, Usage]:
        """Wait for a submission; what its flow run had used when its runs were planned, and in the end."""
        from knockout.errors import RunError
        from knockout.services.usage import Usage, usage

        planned, last, deadline = 0.0, Usage(0.0, 0.0, 0), time.monotonic() + BEGIN_SECONDS
        while True:
            known = self.ledger.submission(submission)
            if known is None and time.monotonic() > deadline:
                raise RunError(f"no worker began the submission in {BEGIN_SECONDS:g} s")
            owner = known.owner.pid if known is not None and known.owner is not None else None
            found = usage(owner) if owner is not None else None
            if found is not None:
                last = found
                if not planned and self.ledger.asked(submission):
                    planned = found.cpu_seconds + found.children_cpu_seconds
            if known is not None and known.state != "running" and found is None:
                if known.state != "done":
                    raise RunError(f"the submission of resting runs is {known.state}: {known.reason}")
                return planned, last
            time.sleep(POLL_SECONDS)

    def _spent(self) -> Spent:
        from knockout.services.usage import usage

        (worker,) = _children(self.worker.pid)
        used = {pid: found for pid in _descendants(self.worker.pid) if (found := usage(pid)) is not None}
        served = [found for pid in _descendants(self.prefect.pid) if (found := usage(pid)) is not None]
        below = sum(one.cpu_seconds + one.children_cpu_seconds for one in used.values()) - used[worker].cpu_seconds
        return Spent(
            worker=used[worker].cpu_seconds,
            below=below,
            server=sum(one.cpu_seconds + one.children_cpu_seconds for one in served),
            requests=self.prefect.log.read_bytes().count(REQUEST),
        )

    def _memory(self) -> tuple[int, int]:
        """Of the worker, and of what it keeps running between flow runs."""
        from knockout.services.usage import usage

        (worker,) = _children(self.worker.pid)
        found = usage(worker)
        kept = [one.peak_bytes for pid in _children(worker) if (one := usage(pid)) is not None]
        return found.peak_bytes if found is not None else 0, max(kept, default=0)


@contextmanager
def opened(folder: Path) -> Iterator[Bench]:
    """A Prefect server and a worker of the default pool in a new workspace; both end with the block, and with this process.

    Raises:
        ServiceError: one of them did not start.
    """
    from knockout import services
    from knockout.cli.flows import PATIENT, load_flow
    from knockout.ledger.workspace import open_workspace
    from knockout.services import catalog

    workspace = open_workspace(folder)
    services.apply_quiet_environment(workspace.folder)
    with ExitStack() as stack:
        server = replace(catalog.PREFECT, environment=_telling)
        prefect = stack.enter_context(_owned(server, workspace=workspace.folder))
        load_flow("pools.deploying", server=prefect.url, retries=PATIENT).deploy(pool=catalog.POOL)
        load_flow("resting", server=prefect.url, retries=PATIENT).deploy_resting(pool=catalog.POOL)
        server = catalog.worker(pool=catalog.POOL, slots=SLOTS, prefect=prefect.url)
        worker = stack.enter_context(_owned(server, workspace=workspace.folder))
        bench = Bench(workspace, prefect=prefect, worker=worker)
        bench.measure(2, first_seed=FIRST_SEED)  # the first flow run has the warm parent started
        yield bench


@contextmanager
def _owned(server: Server, *, workspace: Path) -> Iterator[Running]:
    """A service for as long as the block and this process last."""
    from knockout.services.catalog import url
    from knockout.services.launch import HEALTH_TIMEOUT_SECONDS, Start, await_health, launch_owned
    from knockout.services.processes import free_port

    start = Start(server, workspace=workspace, port=free_port(), borrowed=False, log=server.log(workspace))
    process = launch_owned(start)
    try:
        deadline = time.monotonic() + HEALTH_TIMEOUT_SECONDS
        await_health(start, guard=process.pid, is_alive=lambda: process.poll() is None, deadline=deadline)
        yield Running(process.pid, url(start.port), start.log)
    finally:
        process.communicate()  # closes its standard input, which ends it


def _telling(workspace: Path, port: int, borrowed: bool) -> dict[str, str]:
    """The environment of a server whose log tells of each request."""
    from knockout.services.catalog import PREFECT

    return {**PREFECT.environment(workspace, port, borrowed), "PREFECT_SERVER_LOGGING_LEVEL": "INFO"}


def _request(num_runs: int, *, first_seed: int, workspace: Workspace) -> Request:
    from knockout.declare.load import Overrides
    from knockout.services.catalog import POOL
    from knockout.submission.options import Options
    from knockout.submission.requests import Request
    from knockout.submission.road import new_submission
    from knockout.submission.simulating import simulated_study

    study = simulated_study(workspace)
    return Request(
        new_submission(),
        study=str(study),
        project=str(study.parents[1]),
        pool=POOL,
        handed=time.time(),
        overrides=Overrides(seeds=num_runs // 2, from_seed=first_seed),
        options=Options(mlflow=False),
    )


def _children(pid: int) -> list[int]:
    from knockout.services.processes import all_pids, parent

    return [one for one in all_pids() if parent(one) == pid]


def _descendants(pid: int) -> list[int]:
    from knockout.services.processes import all_pids, is_below

    return [one for one in all_pids() if one not in (pid, os.getpid()) and is_below(one, ancestor=pid)]
