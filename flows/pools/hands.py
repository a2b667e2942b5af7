"""Hands that train nowhere but on a work pool: each run is a flow run of the pool's deployment `training`.

The invariant: the ledger alone says how a run ended. A flow run that Prefect lost, or whose worker died, is asked for anew;
one that Prefect runs twice trains once, since it must hold the run's lease.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import UUID

from httpx import HTTPError
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId, FlowRunFilterState, FlowRunFilterStateType
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.context import TaskRunContext
from prefect.exceptions import PrefectException
from prefect.states import Cancelled

from knockout.errors import RunEnded, WorkspaceError
from knockout.ledger.leases import HELD, lease_seconds
from knockout.ledger.process import tells_death, tells_leaving
from knockout.ledger.stops import Wanted, request_stop
from knockout.ledger.store import LedgerRun
from knockout.submission.bind import BoundRun
from knockout.submission.road import Road
from knockout.submission.single import Order, has_ended
from knockout.training.execute import Early, Execution
from pools.addresses import full_name, workspace_address

MOST_WAITING = 500
"""Runs that a submission has on its pool at a time; each costs a thread that waits."""
POLL_SECONDS = 1.0
ASK_SECONDS = 3.0
"""Prefect is asked so often how flow runs stand, and the ledger whether their owners live."""
ATTEMPTS = 3
"""Flow runs that a run may lose with their workers."""
GRACE_SECONDS = 60.0
"""A run that was asked to end has so long before nobody waits for it any more."""
LEASES = 2.0
"""A flow run that a worker has and that claims nothing for so many leases is taken for lost with its worker."""
BEGIN_SECONDS = 180.0
"""So long a process may take to start on a busy machine, or in a container whose image is fetched first."""
TAKEN = (StateType.PENDING, StateType.RUNNING)
SEEN = FlowRunFilterState(type=FlowRunFilterStateType(not_any_=[StateType.SCHEDULED]))
PAGE = 200
GPUS = "gpus"
"""The variable of a pool's job template that says how many a run takes."""

log = logging.getLogger(__name__)


@dataclass
class Waiting:
    """A run on the pool, and the thread that waits for it."""

    run: BoundRun
    early: Early
    began: Callable[[], None]
    claims: int
    """How often the run had been claimed when it was sent."""
    parent: UUID | None
    asked: int = 0
    """How often a flow run was asked for since the run was last claimed; the number is part of its key."""
    sent: int = 0
    """How many of them were open then."""
    deaths: int = 0
    """How often it was lost with whoever held it."""
    taken: float | None = None
    """When a worker was first seen to have its flow run, on the monotonic clock."""
    flow_run: UUID | None = None
    has_begun: bool = False
    told: bool = False
    """Whether it was told that its search needs it no more."""
    ended: threading.Event = field(default_factory=threading.Event)
    outcome: Execution | RunEnded | None = None

    def end(self, outcome: Execution | RunEnded) -> None:
        """Let the thread that waits go on."""
        self.outcome = outcome
        self.ended.set()


class PoolHands:
    """The hands of a submission that runs on a pool."""

    def __init__(self, road: Road, *, pool: str) -> None:
        self.road = road
        self.ledger = road.ledger
        self.stop = road.limits.stop
        self.client = get_client(sync_client=True).__enter__()
        self.deployment = self.client.read_deployment_by_name(full_name("training", pool=pool)).id
        self.infrastructure = _infrastructure(self.client, pool=pool, devices=road.parallelism.devices)
        self.lock = threading.Lock()
        self.waiting: dict[str, Waiting] = {}
        self.stopped: float | None = None
        self.asked = 0.0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._watch, name="pool", daemon=True)
        self.thread.start()

    @property
    def num_slots(self) -> int:
        """As many as the pool's workers have; so many are waited for at most."""
        return MOST_WAITING

    @property
    def num_threads(self) -> int:
        """One for each run that is waited for."""
        return MOST_WAITING

    def train(self, run: BoundRun, *, early: Early, began: Callable[[], None]) -> Execution:
        """Have a run brought to its end by some worker of the pool.

        Raises:
            RunEnded: the submission ended before the run began, or every flow run of it was lost.
        """
        known = self.ledger.run(run.identity)
        if known is not None and known.finished:
            began()
            return Execution(known, reused=True)
        if self.stop.is_set():
            raise RunEnded(run.name, state=self.stop.ending.state, reason=self.stop.ending.reason)
        context = TaskRunContext.get()
        one = Waiting(run, early, began, known.attempts if known else 0, context.task_run.id if context else None)
        with self.lock:
            self.waiting[run.identity] = one
        one.ended.wait()
        with self.lock:
            del self.waiting[run.identity]
        if isinstance(one.outcome, Execution):
            return one.outcome
        assert one.outcome is not None
        raise one.outcome

    def close(self) -> None:
        """End what is still on the pool."""
        self.over.set()
        self.thread.join()
        if self.stop.is_set() and not self.road.is_left:
            self._request_stop()
        self.client.__exit__(None, None, None)

    def _send(self, one: Waiting) -> None:
        """Ask the pool for a run; whoever takes the flow run finds what it means in the workspace.

        When Prefect does not answer, it is asked again at the next look; the key keeps one flow run for each time of asking.
        """
        run = one.run
        shared = self.road.parallelism.model_dump()
        order = Order(self.road.submission, run.identity, self.road.limits.run_seconds, **shared)
        while True:
            number = one.asked + 1
            flow_run = self.client.create_flow_run_from_deployment(
                self.deployment,
                name=run.name,
                parameters={"workspace": workspace_address(self.road.workspace), **asdict(order)},
                tags=[self.road.submission],
                idempotency_key=f"{self.road.submission}:{run.identity}:{one.claims}:{number}",
                parent_task_run_id=one.parent,
                job_variables=self.infrastructure,
            )
            one.asked = number
            if flow_run.state is None or not flow_run.state.is_final():  # else of a process that walked before this one
                break
        one.flow_run, one.sent, one.taken = flow_run.id, one.sent + 1, None

    def _watch(self) -> None:
        while not self.over.wait(POLL_SECONDS):
            try:
                self._look()
            except (HTTPError, PrefectException, WorkspaceError) as error:
                log.warning("%s: %s; asked again in %g s", type(error).__name__, error, POLL_SECONDS)

    def _look(self) -> None:
        with self.lock:
            waiting = list(self.waiting.values())
        if not waiting:
            return
        if self.road.is_left:  # its flow runs are another's
            ending = self.stop.ending
            for one in waiting:
                one.end(RunEnded(one.run.name, state=ending.state, reason=ending.reason))
            return
        flow_runs: dict[UUID, FlowRun] = {}
        if time.monotonic() - self.asked > ASK_SECONDS:
            flow_runs = _read(self.client, ids=[one.flow_run for one in waiting if one.flow_run is not None])
            self.ledger.reconcile()
            self.asked = time.monotonic()
        if self.stop.is_set() and self.stopped is None:
            self.stopped = time.monotonic()
            self._request_stop()
        runs = {run.identity: run for run in self.ledger.runs([one.run.identity for one in waiting])}
        for one in waiting:
            flow_run, run = flow_runs.get(one.flow_run) if one.flow_run is not None else None, runs[one.run.identity]
            self._settle(one, run=run, flow_run=flow_run)
            if one.flow_run is None and not (one.ended.is_set() or run.state in HELD or self.stop.is_set()):
                self._send(one)  # what somebody trains already, for whomever, is waited for

    def _settle(self, one: Waiting, *, run: LedgerRun, flow_run: FlowRun | None) -> None:
        """Go on from how a run stands in the ledger, and its flow run in Prefect, where that was asked."""
        claimed = run.attempts > one.claims
        if run.state in HELD or claimed or run.finished:
            self._begin(one)
        if run.finished:
            one.end(Execution(run, reused=not claimed))
        elif run.state in HELD:
            self._heed(one)
        elif self.stop.is_set():
            self._call_off(one)
        elif claimed and tells_death(run.reason):
            self._send_again(one, run=run)
        elif claimed:
            one.end(Execution(run, reused=False))
        elif _is_lost(flow_run, of=self.road.submission) and one.sent < ATTEMPTS:
            self._send(one)
        elif flow_run is not None and flow_run.state is not None and flow_run.state.is_final():
            reason = f"its flow run ended before it began: {flow_run.state.name}: {flow_run.state.message}"
            one.end(RunEnded(one.run.name, state="failed", reason=reason))
        elif flow_run is not None and flow_run.state_type in TAKEN and one.sent < ATTEMPTS and self._is_overdue(one):
            self._send(one)  # its worker may be gone; should it begin after all, the ledger has it trained once

    def _request_stop(self) -> None:
        """Tell every machine what the runs are to come to."""
        wanted = Wanted(self.stop.ending.state, self.stop.ending.reason)
        request_stop(self.ledger, submissions=[self.road.submission], wanted=wanted)

    def _is_overdue(self, one: Waiting) -> bool:
        """Whether a worker has the flow run, and nobody has begun the run, for so long that it must be taken for lost."""
        one.taken = one.taken or time.monotonic()
        return time.monotonic() - one.taken > max(LEASES * lease_seconds(), BEGIN_SECONDS)

    def _begin(self, one: Waiting) -> None:
        if not one.has_begun:
            one.has_begun = True
            one.began()

    def _heed(self, one: Waiting) -> None:
        """Tell a run that its search needs it no more; give one up that does not heed a stop."""
        if not one.told and one.early() is not None:
            one.told = True
            order = Order(self.road.submission, one.run.identity)
            request_stop(self.ledger, submissions=[order.pruned])
        if self.stopped is not None and time.monotonic() - self.stopped > GRACE_SECONDS:
            self._call_off(one)

    def _call_off(self, one: Waiting) -> None:
        ending = self.stop.ending
        if one.flow_run is not None:
            self.client.set_flow_run_state(one.flow_run, Cancelled(message=ending.reason), force=True)
        one.end(RunEnded(one.run.name, state=ending.state, reason=ending.reason))

    def _send_again(self, one: Waiting, *, run: LedgerRun) -> None:
        one.deaths += not tells_leaving(run.reason)
        if one.deaths == ATTEMPTS:
            one.end(Execution(run, reused=False))
            return
        one.claims, one.asked, one.sent = run.attempts, 0, 0
        self._send(one)


def _is_lost(flow_run: FlowRun | None, *, of: str) -> bool:
    """Whether a flow run ended before its run began because its process did, or since the study had none for a while."""
    if flow_run is None or flow_run.state is None:
        return False
    return flow_run.state.is_crashed() or (flow_run.state.is_cancelled() and flow_run.state.message == has_ended(of))


def _infrastructure(client: SyncPrefectClient, *, pool: str, devices: int) -> dict[str, Any]:
    """What a run asks of the pool's machines, where the pool gives machines out: a GPU for each of its devices."""
    known = client.read_work_pool(pool).base_job_template.get("variables", {}).get("properties", {})
    return {GPUS: devices} if GPUS in known else {}


def _read(client: SyncPrefectClient, *, ids: Collection[UUID]) -> dict[UUID, FlowRun]:
    """Flow runs by their id, of those that a worker has or had: what waits may be much, and is never asked for."""
    names, found = list(ids), dict[UUID, FlowRun]()
    for begin in range(0, len(names), PAGE):
        page = FlowRunFilter(id=FlowRunFilterId(any_=names[begin : begin + PAGE]), state=SEEN)
        found |= {run.id: run for run in client.read_flow_runs(flow_run_filter=page, limit=PAGE)}
    return found
