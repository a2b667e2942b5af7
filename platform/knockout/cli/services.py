"""Commands for what runs beside the work: up, status, down."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from knockout.cli.options import AsJson, Home

PAGES = {"prefect": "/runs", "mlflow": "/#/experiments"}
"""Where a server's UI shows studies."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(short_help="Start the local Prefect and MLflow servers.")(up)
    app.command(short_help="Show servers, and how submissions stand.")(status)
    app.command(short_help="Stop the servers that `up` started.")(down)


def up(
    prefect_port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the Prefect server.")] = 4200,
    mlflow_port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the MLflow server.")] = 5000,
    workspace: Home = None,
) -> None:
    """Start the local Prefect and MLflow servers, wait until they answer, and say where their UIs are.

    What dead processes left open in Prefect is set right.
    """
    from knockout import services
    from knockout.cli.flows import load_flow
    from knockout.ledger.store import Ledger
    from knockout.ledger.workspace import open_workspace

    place = open_workspace(workspace)
    ledger = Ledger(place)
    ledger.reconcile()
    print("starting Prefect and MLflow …", file=sys.stderr)
    started = services.up(place.folder, ports={"prefect": prefect_port, "mlflow": mlflow_port})
    services.apply_quiet_environment(place.folder)
    for service in started:
        if service.name == "prefect":
            load_flow("reconciling", server=service.url).reconcile(ledger)
        print(f"{service.name:8} {service.url}{PAGES[service.name]}")


def status(workspace: Home = None, as_json: AsJson = False) -> None:
    """Show which servers run, what is being trained, and how the newest submissions ended."""
    from rich.console import Console

    from knockout import services
    from knockout.ledger.store import Ledger
    from knockout.ledger.workspace import open_workspace
    from knockout.submission.tables import service_table, submission_table
    from knockout.submission.watching import submissions

    place = open_workspace(workspace)
    ledger = Ledger(place)
    ledger.reconcile()
    servers, newest = services.status(place.folder), submissions(ledger, limit=10)
    if as_json:
        data = {"services": [asdict(server) for server in servers], "submissions": [asdict(item) for item in newest]}
        print(json.dumps(data, indent=1, default=str))
        return
    console = Console()
    console.print(service_table(servers))
    if newest:
        console.print(submission_table(newest))


def down(workspace: Home = None) -> None:
    """Stop exactly the servers that `up` started."""
    from knockout import services
    from knockout.ledger.workspace import open_workspace

    stopped = services.down(open_workspace(workspace).folder)
    print(f"stopped {' and '.join(stopped)}" if stopped else "nothing was running")
