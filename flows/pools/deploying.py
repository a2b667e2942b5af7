"""Telling a Prefect server what can run on a pool: the deployments that prefect.yaml declares.

The invariant: to do it again changes nothing; what is declared replaces what the server has under the same name.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from httpx import HTTPError
from prefect import Flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound, PrefectException
from prefect.utilities.callables import parameter_schema
from prefect.workers.process import ProcessWorker

from knockout import __version__, project
from knockout.declare.document import read_document
from knockout.errors import ServiceError
from knockout.services.catalog import STUDIES, TRAINING
from pools.addresses import deployment_name, full_name


def deploy(*, pool: str) -> None:
    """Make the pool, if there is none, and its deployments.

    Raises:
        ServiceError: Prefect's server does not answer.
    """
    with _server() as client:
        _make_pool(client, name=pool)
        for declared in _declared():
            _deploy(client, declared, pool=pool)


def deploy_from(entrypoint: str, *, name: str, pool: str) -> None:
    """Have one deployment of a pool run another flow than the declared one.

    Raises:
        ServiceError: Prefect's server does not answer.
    """
    (declared,) = [one for one in _declared() if one["name"] == name]
    with _server() as client:
        _deploy(client, {**declared, "entrypoint": entrypoint}, pool=pool)


def _make_pool(client: SyncPrefectClient, *, name: str) -> None:
    """A pool of processes; one that exists, whatever its type, stays as it is."""
    try:
        client.read_work_pool(name)
    except ObjectNotFound:
        template = ProcessWorker.get_default_base_job_template()
        with contextlib.suppress(ObjectAlreadyExists):  # another machine was quicker
            client.create_work_pool(WorkPoolCreate(name=name, type=ProcessWorker.type, base_job_template=template))
    known = {queue.name for queue in client.read_work_queues(work_pool_name=name)}
    for queue in (STUDIES, TRAINING):
        if queue not in known:
            with contextlib.suppress(ObjectAlreadyExists):
                client.create_work_queue(queue, work_pool_name=name)


def _deployed(client: SyncPrefectClient, *, name: str) -> str | None:
    """The version of the deployment that is there; None where there is none."""
    try:
        return client.read_deployment_by_name(name).version
    except ObjectNotFound:
        return None


def _deploy(client: SyncPrefectClient, declared: dict[str, Any], *, pool: str) -> None:
    name, version = declared["name"], _version(declared)
    if _deployed(client, name=full_name(name, pool=pool)) == version:
        return
    flow = _flow(declared)
    client.create_deployment(
        client.create_flow_from_name(flow.name),
        deployment_name(name, pool=pool),
        version=version,
        description=declared["description"],
        entrypoint=declared["entrypoint"],
        pull_steps=declared["pull"],
        work_pool_name=pool,
        work_queue_name=declared["work_pool"]["work_queue_name"],
        parameter_openapi_schema=parameter_schema(flow).model_dump_for_openapi(),
        enforce_parameter_schema=True,
    )


def _declared() -> Iterator[dict[str, Any]]:
    """Each deployment of prefect.yaml, with the pull steps."""
    data = read_document(Path(project.root(), "flows", "prefect.yaml")).data
    return ({**declared, "pull": data["pull"]} for declared in data["deployments"])


def _flow(declared: dict[str, Any]) -> Flow[Any, Any]:
    """The flow that a deployment's entrypoint names; its file is imported only here, since it brings the whole road."""
    path, _, name = declared["entrypoint"].partition(":")
    return dict(inspect.getmembers(importlib.import_module(Path(path).stem)))[name]


def _version(declared: dict[str, Any]) -> str:
    """What changes when the declaration, the flows or knockout do."""
    flows = Path(project.root(), declared["entrypoint"].partition(":")[0]).read_bytes()
    return hashlib.sha256(f"{__version__} {declared}".encode() + flows).hexdigest()[:16]


@contextlib.contextmanager
def _server() -> Iterator[SyncPrefectClient]:
    try:
        with get_client(sync_client=True) as client:
            yield client
    except (HTTPError, PrefectException) as error:
        raise ServiceError(f"Prefect's server refused the deployments ({type(error).__name__}: {error})") from None
