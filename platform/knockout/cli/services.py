"""Commands for what runs beside the work: up, status, down."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from knockout.cli.options import AsJson, Home, Slots
from knockout.ledger.reserve import LOOKING

if TYPE_CHECKING:
    from knockout.ledger.workspace import Workspace


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(short_help="Start the local Prefect and MLflow servers and a worker.")(up)
    app.command(short_help="Show services, and how submissions stand.")(status)
    app.command(short_help="Stop what `up` started.")(down)


def up(
    prefect_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port of the Prefect server [default: the last one, or 4200].")
    ] = None,
    mlflow_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port of the MLflow server [default: the last one, or 5000].")
    ] = None,
    slots: Slots = None,
    workspace: Home = None,
) -> None:
    """Start the local Prefect and MLflow servers and a worker, wait until they answer, and say where the UIs are.

    What runs already stays as it is, save a worker that works for another address than Prefect has now. What dead processes
    left open in Prefect is set right, and schedules are made as they are declared. A port that is not given is the one that
    the workspace used last.
    """
    from knockout import services
    from knockout.cli.flows import PATIENT, load_flow
    from knockout.cli.scheduling import match_schedules
    from knockout.ledger.store import Ledger
    from knockout.ledger.workspace import open_workspace
    from knockout.services.catalog import PAGES, POOL
    from knockout.submission.schedules import keep_file
    from knockout.submission.slots import usable_slots

    place = open_workspace(workspace)
    ledger = Ledger(place)
    ledger.reconcile()
    asked = {"prefect": prefect_port, "mlflow": mlflow_port}
    ports = {name: port for name, port in asked.items() if port is not None}
    coming = services.begin_up(place.folder, ports=ports, say=_say)
    services.apply_quiet_environment(place.folder)
    if coming["prefect"].exception() is not None:
        services.all_of(coming.values())
    prefect = coming["prefect"].result().url
    load_flow("reconciling", server=prefect, retries=PATIENT).reconcile(ledger)
    load_flow("schedules.lost_sweeps", server=prefect, retries=PATIENT).close_lost(ledger, idle=not _works(place))
    load_flow("pools.deploying", server=prefect, retries=PATIENT).deploy(pool=POOL)
    keep_file(place)
    match_schedules(place, server=prefect)
    services.up_worker(place.folder, pool=POOL, slots=slots, prefect=prefect, say=_say)
    for service in services.all_of(coming.values()):
        print(f"{service.name:8} {service.url}{PAGES[service.name]}")
    print(f"worker   pool {POOL}, {slots or usable_slots()} runs at a time")


def _works(workspace: Workspace) -> bool:
    """Whether the worker runs."""
    from knockout import services
    from knockout.services.catalog import WORKER

    return any(one.name == WORKER.name and one.running for one in services.status(workspace.folder))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def status(
    name: Annotated[
        str | None, typer.Argument(metavar="[STUDY|SUBMISSION]", help="Show each run of its newest submission.")
    ] = None,
    workspace: Home = None,
    as_json: AsJson = False,
) -> None:
    """Show which services run, what waits in which queue, what is being trained, and how the newest submissions ended."""
    from knockout.cli.settling import set_right, set_right_in_prefect
    from knockout.cli.standing import overview, standing
    from knockout.ledger.store import Ledger
    from knockout.ledger.workspace import open_workspace

    place = open_workspace(workspace, reserve_left=LOOKING)
    ledger = Ledger(place)
    set_right(ledger)
    set_right_in_prefect(ledger)
    shown = overview(ledger) if name is None else standing(ledger, name=name)
    if as_json:
        print(json.dumps(shown.data, indent=1, default=str))
    else:
        shown.show()


def down(workspace: Home = None) -> None:
    """Stop exactly what `up` started; runs of the worker stop after their step, with a checkpoint.

    A study that was submitted goes on where another worker takes it over, or with the next `up` within a day.
    """
    from knockout import services
    from knockout.ledger.workspace import open_workspace

    stopped = services.down(open_workspace(workspace, reserve_left=LOOKING).folder, say=_say)
    print(f"stopped {', '.join(stopped)}" if stopped else "nothing was running")
