"""Prefect's schedules, made to match those that are wanted: a deployment of the flow `nightly` for each.

The invariant: to do it again changes nothing, and keeps a flow run that is late; a schedule that nobody wants any more goes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from anyio.from_thread import start_blocking_portal
from httpx import HTTPError
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterTags
from prefect.client.schemas.objects import ConcurrencyLimitStrategy, ConcurrencyOptions
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule
from prefect.exceptions import PrefectException
from prefect.server.schemas.schedules import CronSchedule as Calculated

from knockout.declare.schedules import Schedule
from knockout.errors import ServiceError
from knockout.ledger.workspace import Workspace
from knockout.submission.schedules import Known
from pools.addresses import full_name

TAG = "knockout schedule"
FLOW = "nightly"
AT_ONCE = 1000


def next_dates(schedule: Schedule, *, after: datetime, count: int) -> list[datetime]:
    """The next times at which a schedule is due, by Prefect's own calculation."""
    cron = Calculated(cron=schedule.cron, timezone=schedule.timezone)
    with start_blocking_portal() as portal:
        return list(portal.call(cron.get_dates, count, after))


def last_due(schedule: Schedule, *, scheduled: datetime, now: datetime) -> datetime:
    """The newest due time up to `now`, seen from one that was scheduled: what a late flow run stands for."""
    due = scheduled
    while dates := [date for date in next_dates(schedule, after=due, count=AT_ONCE) if due < date <= now]:
        due = dates[-1]
    return due


def reconcile(known: Sequence[Known], *, workspace: Workspace) -> None:
    """Make the server's schedules those of this workspace; the pools must have been deployed to.

    Raises:
        ServiceError: Prefect's server does not answer.
    """
    try:
        with get_client(sync_client=True) as client:
            there = {one.name: one for one in _deployments(client)}
            wanted = {_name(one.schedule.schedule): one for one in known}
            for name in there.keys() - wanted.keys():
                client.delete_deployment(there[name].id)
            for name, one in wanted.items():
                template = client.read_deployment_by_name(full_name(FLOW, pool=one.schedule.pool))
                version = _version(one, template=template, workspace=workspace)
                if name not in there or there[name].version != version:
                    _deploy(client, one, template=template, version=version, workspace=workspace)
    except (HTTPError, PrefectException) as error:
        raise ServiceError(f"Prefect's server refused the schedules ({type(error).__name__}: {error})") from None


def _deployments(client: SyncPrefectClient) -> list[DeploymentResponse]:
    return client.read_deployments(deployment_filter=DeploymentFilter(tags=DeploymentFilterTags(all_=[TAG])))


def _deploy(
    client: SyncPrefectClient, one: Known, *, template: DeploymentResponse, version: str, workspace: Workspace
) -> None:
    """One at a time of each: a second flow run is cancelled, not kept waiting."""
    cron = CronSchedule(cron=one.schedule.cron, timezone=one.schedule.timezone)
    client.create_deployment(
        template.flow_id,
        _name(one.schedule.schedule),
        version=version,
        schedules=[DeploymentScheduleCreate(schedule=cron, active=one.active)],
        concurrency_limit=1,
        concurrency_options=ConcurrencyOptions(collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW),
        parameters={"workspace": str(workspace.folder), "schedule": one.schedule.schedule},
        description=f"The schedule {one.schedule.schedule} of {workspace.folder}: what it runs is read when it is due.",
        tags=[TAG],
        entrypoint=template.entrypoint,
        pull_steps=template.pull_steps,
        work_pool_name=template.work_pool_name,
        work_queue_name=template.work_queue_name,
        parameter_openapi_schema=template.parameter_openapi_schema,
        enforce_parameter_schema=True,
    )


def _name(schedule: str) -> str:
    return f"schedule {schedule}"


def _version(one: Known, *, template: DeploymentResponse, workspace: Workspace) -> str:
    """What changes with anything that Prefect must know of a schedule, and with nothing else: a late flow run goes then."""
    taken = f"{template.entrypoint} {template.pull_steps} {template.work_queue_name} {template.parameter_openapi_schema}"
    said = f"{one.schedule.cron} {one.schedule.timezone} {one.schedule.pool} {one.active} {workspace.folder} {taken}"
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def soonest(schedule: Schedule) -> datetime:
    """When a schedule is due next."""
    return next_dates(schedule, after=datetime.now(UTC) + timedelta(seconds=1), count=1)[0]
