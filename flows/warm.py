"""The warm parent of a worker's flow runs: imports Prefect's engine and what trains once, then forks a process for each.

A fork begins its flow run after some hundredths of a second of processor time, where Prefect's own worker starts three
interpreters that take eight seconds. The invariant: this process has no threads, loops, connections or databases of Prefect
or of a ledger, so that a fork of it is whole; and it dies with its worker, and its flow runs with it.

`python warm.py WORKER`; a request, beside what `services.forking` says of requests, is
    {"flow_run": "…", "entrypoint": "flows/bringing.py:training", "environment": {…}}
"""

from __future__ import annotations

import atexit
import gc
import os
import ssl
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from knockout.training.dying import die_with

if TYPE_CHECKING:
    from prefect import Flow

    from knockout.services.forking import Forked


@dataclass
class Ending:
    """How a flow run's process ends."""

    code: int = 1


def main(worker: int) -> None:
    """Import, then serve until there is no worker."""
    die_with(worker)
    sys.path.insert(0, str(Path(__file__).parent))  # as Prefect does for the flows that it loads
    from knockout.services.importing import uncollected  # from here on the worker may not live long enough for an import

    with uncollected():
        flows = _import()
        _complete()
    from prefect.settings import (
        PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED,
        PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
        temporary_settings,
    )

    from knockout.services.forking import serve

    gc.freeze()
    # The ledger's leases tell of life, and the worker has looked at the server's version.
    with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None, PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED: False}):
        if (forked := serve({})) is not None:
            _become(forked, flow=flows.get(forked.request["entrypoint"]))


def _import() -> dict[str, Flow[Any, Any]]:
    """Import what flow runs need, also what they would import when they run; the flows that train, by their entrypoints."""
    import encodings.idna  # noqa: F401

    import anyio._backends._asyncio  # noqa: F401
    import prefect.events.clients
    import prefect.flow_engine  # noqa: F401

    import bringing
    import knockout.training.nursery  # noqa: F401  # torch and Lightning
    import resting

    return {"flows/bringing.py:training": bringing.training, resting.ENTRYPOINT: resting.training}


def _complete() -> None:
    """Have Pydantic complete the models that it left for their first use."""
    from prefect._internal.schemas.bases import PrefectBaseModel

    pending: list[type[PrefectBaseModel]] = [PrefectBaseModel]
    while pending:
        model = pending.pop()
        pending += model.__subclasses__()
        if not model.__pydantic_complete__:
            model.model_rebuild(raise_errors=False)


def _become(forked: Forked, *, flow: Flow[Any, Any] | None) -> None:
    """In a forked process: run a flow run, then have Prefect tell what it has to tell, and end."""
    die_with(forked.parent)
    ending = Ending()
    atexit.register(_leave, ending)  # before Prefect registers anything, so that it comes last
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.environ.clear()
    os.environ.update(forked.request["environment"])
    if flow is not None:
        _prepare_training()
    try:
        _run(UUID(forked.request["flow_run"]), flow=flow)
        ending.code = 0
    except SystemExit as left:
        ending.code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        traceback.print_exc()


def _prepare_training() -> None:
    """What the deployment's pull step does, and a parent for the training while there are no threads."""
    from knockout import project
    from knockout.training.spare import fork_spare

    fork_spare()
    os.chdir(project.root())


def _run(name: UUID, *, flow: Flow[Any, Any] | None) -> None:
    """What `python -m prefect.engine` does; a flow that was not imported before the fork is loaded as there."""
    from prefect._internal.control_listener import configure_from_env
    from prefect.context import SyncClientContext
    from prefect.engine import handle_engine_signals
    from prefect.flow_engine import load_flow, run_flow

    configure_from_env()
    with handle_engine_signals(name), SyncClientContext(_http_settings()) as context:
        flow_run = context.client.read_flow_run(name)
        if flow is None:
            flow = load_flow(flow_run)
        else:  # a training calls no tasks, at which alone it could be suspended: nobody need listen whether it is to be
            flow_run.deployment_id = None
        run_flow(flow, flow_run=flow_run)


def _http_settings() -> dict[str, Any]:
    """To a server that is not asked for a certificate none is verified: reading those of all authorities takes a while."""
    from prefect.settings import PREFECT_API_URL

    plain = str(PREFECT_API_URL.value()).startswith("http://")
    return {"verify": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)} if plain else {}


def _leave(ending: Ending) -> None:
    """End without taking torch down, which costs a second."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ending.code)


if __name__ == "__main__":
    main(int(sys.argv[1]))
