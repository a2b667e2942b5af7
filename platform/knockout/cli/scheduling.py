"""Commands for schedules: schedule add, list, pause, resume, remove."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from knockout.cli.options import AsJson, Home

if TYPE_CHECKING:
    from knockout.ledger.workspace import Workspace

NO_SERVER = "http://127.0.0.1:4200"
"""Stands for a server where none is asked."""
Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]
schedule = typer.Typer(no_args_is_help=True, help="Run studies with fresh seeds at set times, and tell what changed.")


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    app.add_typer(schedule, name="schedule", short_help="Run studies at set times, and tell what changed.")


@schedule.command("add", short_help="Add a schedule to the workspace.")
def add_schedule(
    name: Name,
    cron: Annotated[str, typer.Option("--cron", help="Minute, hour, day, month and weekday, as in '0 2 * * *'.")],
    studies: Annotated[list[str], typer.Option("--studies", help="A study or a pattern of files; repeatable.")],
    timezone: Annotated[str, typer.Option("--timezone", help="The zone of these times, such as Europe/Berlin.")] = "UTC",
    size: Annotated[str | None, typer.Option("--size", help="Run at this size instead of each study's own.")] = None,
    pool: Annotated[str, typer.Option("--pool", help="The work pool that takes the runs.")] = "knockout",
    command: Annotated[
        list[str] | None, typer.Option("--on-change", metavar="WORD", help="A command to run on a change; one word each.")
    ] = None,
    webhook: Annotated[str | None, typer.Option("--webhook", help="An address that gets what changed as JSON.")] = None,
    workspace: Home = None,
) -> None:
    """Add a schedule to the workspace. The studies are found from the current folder."""
    from knockout.declare.document import Document
    from knockout.declare.load import validate
    from knockout.declare.schedules import Schedule
    from knockout.errors import InputError
    from knockout.ledger.workspace import open_workspace
    from knockout.submission.schedules import add

    if command and webhook is not None:
        raise InputError("--on-change runs a command and --webhook posts: give one of them")
    data: dict[str, Any] = {
        "schedule": name, "cron": cron, "timezone": timezone, "studies": studies, "size": size, "pool": pool,
        "on_change": {"kind": "command", "run": command} if command else _webhook(webhook),
    }  # fmt: skip
    place = open_workspace(workspace)
    add(validate(Document(data), model=Schedule), folder=Path.cwd(), workspace=place)
    _match(place)
    _show_one(name, workspace=place)


@schedule.command("list", short_help="Show every schedule, and when it is due next.")
def list_schedules(workspace: Home = None, as_json: AsJson = False) -> None:
    """Show every schedule: when, what, whether it runs, when it is due next, and how the last sweep ended."""
    from rich.console import Console

    from knockout.ledger.store import Ledger
    from knockout.ledger.ticks import last_ticks
    from knockout.ledger.workspace import open_workspace
    from knockout.submission.schedules import schedules
    from knockout.submission.tables import schedule_table

    place = open_workspace(workspace)
    known, ledger = schedules(place), Ledger(place)
    due, ticks = _due([one.schedule for one in known]), last_ticks(ledger)
    if as_json:
        rows = [
            {
                **one.schedule.model_dump(mode="json"),
                "active": one.active,
                "declared": one.declared,
                "next": due[one.schedule.schedule] if one.active else None,
                "last": ticks[one.schedule.schedule].state if one.schedule.schedule in ticks else None,
            }
            for one in known
        ]
        print(json.dumps(rows, indent=1))
    elif known:
        Console().print(schedule_table(known, due=due, ticks=ticks))
    else:
        print("no schedules: `knockout schedule add`, or flows/schedules.yaml")


@schedule.command(short_help="Pause a schedule.")
def pause(name: Name, workspace: Home = None) -> None:
    """Pause a schedule: nothing of it begins until it is resumed. A sweep that runs goes on."""
    _set_active(name, active=False, workspace=workspace)


@schedule.command(short_help="Let a paused schedule go on.")
def resume(name: Name, workspace: Home = None) -> None:
    """Let a paused schedule go on, from its next due time."""
    _set_active(name, active=True, workspace=workspace)


@schedule.command(short_help="Take a schedule out of the workspace.")
def remove(name: Name, workspace: Home = None) -> None:
    """Take out a schedule that was added here; one that flows/schedules.yaml declares is taken out there."""
    from knockout.ledger.workspace import open_workspace
    from knockout.submission.schedules import remove as take_out

    place = open_workspace(workspace)
    take_out(name, workspace=place)
    _match(place)
    print(f"{name}: removed")


def _webhook(url: str | None) -> dict[str, Any]:
    return {"kind": "webhook", "url": url} if url is not None else {"kind": "none"}


def _set_active(name: str, *, active: bool, workspace: Path | None) -> None:
    from knockout.ledger.workspace import open_workspace
    from knockout.submission.schedules import set_active

    place = open_workspace(workspace)
    set_active(name, active=active, workspace=place)
    _match(place)
    _show_one(name, workspace=place)


def _match(workspace: Workspace) -> None:
    """Tell the server, where one runs; else `knockout up` does."""
    from knockout.cli.prefect_server import own_prefect

    if (server := own_prefect(workspace)) is None:
        print("no server runs here: `knockout up` starts one, and the schedule with it", file=sys.stderr)
        return
    match_schedules(workspace, server=server)


def match_schedules(workspace: Workspace, *, server: str) -> None:
    """Make a server's schedules those that are wanted, on pools that have their deployments."""
    from knockout.cli.flows import PATIENT, load_flow
    from knockout.submission.schedules import schedules

    known = schedules(workspace)
    for pool in dict.fromkeys(one.schedule.pool for one in known):
        load_flow("deploying", server=server, retries=PATIENT).deploy(pool=pool)
    load_flow("scheduling", server=server, retries=PATIENT).reconcile(known, workspace=workspace)


def _show_one(name: str, *, workspace: Workspace) -> None:
    from knockout.submission.schedules import find_schedule
    from knockout.submission.tables import minute

    one = find_schedule(name, workspace=workspace)
    says = f"due next {minute(_due([one.schedule])[name])}" if one.active else "paused"
    print(f"{name}: {', '.join(one.schedule.studies)} at {one.schedule.cron} {one.schedule.timezone}, {says}")


def _due(known: list[Any]) -> dict[str, float]:
    """When each schedule is due next, in seconds since 1970."""
    from knockout.cli.flows import PATIENT, load_flow

    if not known:
        return {}
    flows = load_flow("scheduling", server=NO_SERVER, retries=PATIENT)
    return {one.schedule: flows.soonest(one).timestamp() for one in known}
