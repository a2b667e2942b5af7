"""Commands for schedules: schedule add, list, pause, resume, remove."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from knockout.cli.options import STUDIES, AsJson, Home

if TYPE_CHECKING:
    from knockout.declare.schedules import Schedule
    from knockout.ledger.ticks import Tick
    from knockout.ledger.workspace import Workspace

NO_SERVER = "http://127.0.0.1:4200"
"""Stands for a server where none is asked."""
_FLAGS = {
    "schedule": "NAME", "cron": "--cron", "timezone": "--timezone", "studies": "--studies", "size": "--size",
    "pool": "--pool", "on_change": "--on-change or --webhook",
}  # fmt: skip
"""Where each key of a schedule is given on the command line."""
Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]
schedule = typer.Typer(no_args_is_help=True, help="Run studies with fresh seeds at set times, and tell what changed.")


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    app.add_typer(schedule, name="schedule", short_help="Run studies at set times, and tell what changed.")


@schedule.command("add", short_help="Add a schedule to the workspace.")
def add_schedule(
    name: Name,
    cron: Annotated[str, typer.Option("--cron", help="Minute, hour, day, month and weekday, as in '0 2 * * *'.")],
    studies: Annotated[list[str], typer.Option("--studies", help=STUDIES)],
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
    from knockout.cli.pool_names import say_unserved
    from knockout.errors import InputError
    from knockout.ledger.workspace import open_workspace
    from knockout.submission.schedules import add

    if command and webhook is not None:
        raise InputError("--on-change runs a command and --webhook posts: give one of them")
    data: dict[str, Any] = {
        "schedule": name, "cron": cron, "timezone": timezone, "studies": studies, "size": size, "pool": pool,
        "on_change": {"kind": "command", "run": command} if command else _webhook(webhook),
    }  # fmt: skip
    wanted = _declared(data)
    _check_studies(wanted, folder=Path.cwd())
    place = open_workspace(workspace)
    served = _check_pool(wanted, workspace=place)
    add(wanted, folder=Path.cwd(), workspace=place)
    _match(place)
    _show_one(name, workspace=place)
    if not served:
        say_unserved(pool)


@schedule.command("list", short_help="Show every schedule, and when it is due next.")
def list_schedules(workspace: Home = None, as_json: AsJson = False) -> None:
    """Show every schedule: when, what, on which pool, whether it runs, when it is due next, and how its last sweep ended."""
    from rich.console import Console

    from knockout.ledger.store import Ledger
    from knockout.ledger.ticks import last_ticks
    from knockout.ledger.workspace import open_workspace
    from knockout.submission.schedules import schedules, unsound
    from knockout.submission.tables import schedule_table

    place = open_workspace(workspace)
    for one in unsound(place):
        print(f"{one.name} never runs: {one.why}; `knockout schedule remove {one.name}` takes it out", file=sys.stderr)
    known, ledger = schedules(place), Ledger(place)
    due, ticks = _due([one.schedule for one in known], workspace=place), last_ticks(ledger)
    if as_json:
        rows = [
            {
                **one.schedule.model_dump(mode="json"),
                "active": one.active,
                "declared": one.declared,
                "next": due[one.schedule.schedule] if one.active else None,
                **_last(ticks.get(one.schedule.schedule)),
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


def _declared(data: dict[str, Any]) -> Schedule:
    """The schedule; what is wrong is told at the option that gave it."""
    from knockout.declare.document import Document
    from knockout.declare.load import validate
    from knockout.declare.schedules import Schedule
    from knockout.errors import DeclarationError

    try:
        return validate(Document(data), model=Schedule)
    except DeclarationError as error:
        flags = [_FLAGS[problem.path.partition(".")[0]] for problem in error.problems]
        told = [replace(problem, file=flag, path="") for problem, flag in zip(error.problems, flags, strict=True)]
        raise DeclarationError(told) from None


def _check_studies(wanted: Schedule, *, folder: Path) -> None:
    """Refuse a schedule whose studies are not there, or cannot be read at its size."""
    from knockout.declare.load import Overrides, find_study, load_size, load_study
    from knockout.declare.schedules import studies_of
    from knockout.errors import DeclarationError

    if wanted.size is not None:
        load_size(wanted.size)
    for study in studies_of(wanted.studies, folder=folder):
        loaded = load_study(find_study(study), overrides=Overrides(size=wanted.size))
        if loaded.problems:
            raise DeclarationError(list(loaded.problems))


def _check_pool(wanted: Schedule, *, workspace: Workspace) -> bool:
    """Refuse a pool that the server does not have; whether a worker serves it, or no server is there to ask."""
    from knockout.cli.flows import PATIENT, load_flow
    from knockout.cli.pool_names import check_pool
    from knockout.cli.prefect_server import own_prefect

    if (server := own_prefect(workspace)) is None:
        return True
    check_pool(wanted.pool, server=server)
    return load_flow("pools.inventory", server=server, retries=PATIENT).num_online(wanted.pool) > 0


def _last(tick: Tick | None) -> dict[str, Any]:
    """How the last sweep ended, and why, or where its page is."""
    return {"last": tick.state if tick is not None else None, "reason": tick.reason if tick is not None else None}


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
        load_flow("pools.deploying", server=server, retries=PATIENT).deploy(pool=pool)
    load_flow("schedules.scheduling", server=server, retries=PATIENT).reconcile(known, workspace=workspace)


def _show_one(name: str, *, workspace: Workspace) -> None:
    from knockout.submission.schedules import find_schedule
    from knockout.submission.tables import minute

    one, says = find_schedule(name, workspace=workspace), "paused"
    if one.active:
        due = _due([one.schedule], workspace=workspace)[name]
        says = f"due next {minute(due, zone=one.schedule.timezone)}"
    print(f"{name}: {', '.join(one.schedule.studies)} at {one.schedule.cron} {one.schedule.timezone}, {says}")


def _due(known: list[Any], *, workspace: Workspace) -> dict[str, float]:
    """When each schedule is due next, in seconds since 1970."""
    from knockout import services
    from knockout.cli.flows import PATIENT, load_flow

    if not known:
        return {}
    services.apply_quiet_environment(workspace.folder)
    flows = load_flow("schedules.scheduling", server=NO_SERVER, retries=PATIENT)
    return {one.schedule: flows.soonest(one).timestamp() for one in known}
