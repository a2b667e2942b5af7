"""`knockout nightly`: studies with fresh seeds, one after the other, and what changed against their history."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo

import typer

from knockout.cli.options import Home

if TYPE_CHECKING:
    from knockout.declare.schedules import OnChange
    from knockout.history.rows import Row
    from knockout.ledger.workspace import Workspace
    from knockout.report.changes import Sweep


REFUSED = 2


@dataclass(frozen=True)
class Order:
    """What a sweep runs, where, and whom it tells."""

    title: str
    studies: tuple[str, ...]
    size: str | None
    pool: str | None
    """None: here, in this process's care."""
    day: datetime
    on_change: OnChange


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Run studies with fresh seeds, and tell what changed.")(nightly)


def nightly(
    studies: Annotated[
        list[str] | None, typer.Option("--studies", help="A study or a pattern such as ablations/*.yaml; repeatable.")
    ] = None,
    size: Annotated[str | None, typer.Option("--size", help="Run at this size instead of each study's own.")] = None,
    pool: Annotated[str | None, typer.Option("--pool", help="Have a work pool train [default: train here].")] = None,
    schedule: Annotated[str | None, typer.Option("--schedule", help="Do what this schedule says.")] = None,
    from_seed: Annotated[int | None, typer.Option(min=0, help="First seed [default: the day's own].")] = None,
    workspace: Home = None,
) -> None:
    """Run studies with seeds that no other day has, on today's code, and compare with every sweep before.

    The page says which verdicts flipped, which numbers drifted beyond their noise, and which speeds fell. The exit code is
    1 when a claim flipped or a study came to no verdicts.
    """
    from knockout.errors import InputError
    from knockout.history.nights import first_seed_of
    from knockout.ledger.workspace import open_workspace

    place = open_workspace(workspace)
    if (schedule is None) == (not studies):
        raise InputError("give either --studies or --schedule")
    order = _scheduled(schedule, workspace=place) if schedule is not None else _order(studies or (), size=size, pool=pool)
    seed = from_seed if from_seed is not None else first_seed_of(order.day.date())
    sweep = _sweep(order, seed=seed, workspace=place)
    untold = _tell(sweep, order=order, workspace=place)
    sys.exit(1 if sweep.flipped or sweep.missed or untold else 0)


def _order(studies: Sequence[str], *, size: str | None, pool: str | None) -> Order:
    from knockout.cli.pool_names import check_pool_name
    from knockout.declare.schedules import TellNobody, studies_of

    if pool is not None:
        check_pool_name(pool)
    found = studies_of(studies, folder=Path.cwd())
    return Order("A sweep by hand", found, size, pool, datetime.now().astimezone(), TellNobody())


def _scheduled(name: str, *, workspace: Workspace) -> Order:
    from knockout.declare.schedules import studies_of
    from knockout.submission.schedules import find_schedule

    known = find_schedule(name, workspace=workspace)
    wanted = known.schedule
    found = studies_of(wanted.studies, folder=Path(known.project))
    day = datetime.now(ZoneInfo(wanted.timezone))
    return Order(f"The sweep {name}", found, wanted.size, wanted.pool, day, wanted.on_change)


def _sweep(order: Order, *, seed: int, workspace: Workspace) -> Sweep:
    """Run every study, whatever becomes of the others, and hold what they came to against the history."""
    from knockout.history.changes import changes
    from knockout.history.nights import code_digest, num_nights, repeats
    from knockout.history.table import append, read
    from knockout.report.changes import Sweep

    missed: list[str] = []
    tonight: list[Row] = []
    started, past = time.time(), read(workspace)
    for place, study in enumerate(order.studies, start=1):
        print(f"\n[{place} of {len(order.studies)}] {study}", flush=True)
        rows = _run(study, order=order, seed=seed, started=started, workspace=workspace)
        if isinstance(rows, str):
            missed.append(f"{study}: {rows}")
            continue
        tonight += rows
        append(rows, workspace=workspace)
    again = repeats(tonight, past=past)
    return Sweep(
        title=order.title,
        when=f"{order.day:%Y-%m-%d %H:%M %Z}",
        first_seed=seed,
        code=code_digest(),
        changes=tuple(changes(tonight, past=past)),
        verdicts=tuple((row.study, row.name, row.size, row.outcome or "") for row in tonight if row.kind == "claim"),
        missed=tuple(missed),
        nights=num_nights(past, besides=seed),
        repeats=f"{datetime.fromtimestamp(again, order.day.tzinfo):%Y-%m-%d %H:%M}" if again is not None else None,
    )


def _run(study: str, *, order: Order, seed: int, started: float, workspace: Workspace) -> list[Row] | str:
    """Bring one study to its verdicts in a process of its own; its rows, or why there are none."""
    from knockout.cli.unattended import hear_command
    from knockout.declare.load import Overrides
    from knockout.history.nights import code_digest
    from knockout.history.rows import rows_of
    from knockout.ledger.store import Ledger

    changes = ["--from-seed", str(seed), *(["--size", order.size] if order.size is not None else [])]
    where = ["submit", study, "--wait", "--pool", order.pool] if order.pool is not None else ["run", study]
    ended = hear_command([*where, *changes, "--workspace", str(workspace.folder)])
    if ended.code == REFUSED:
        return f"refused (exit code {ended.code}): {ended.words}"
    ledger = Ledger(workspace)
    name, arguments = _name(study), Overrides(size=order.size, from_seed=seed).arguments
    if ended.code != 0:
        newest = next((one for one in ledger.submissions(name) if one.created >= started), None)
        ledger.close()
        why = ended.words if newest is None else f"{newest.state}: {newest.reason or ended.words}"
        return f"failed (exit code {ended.code}): {why}"
    found = next((one for one in ledger.submissions(name) if one.state == "done"), None)
    facts = ledger.facts(name, arguments=arguments)
    ledger.close()
    if found is None or facts is None:
        return "there is no report of it"
    return list(rows_of(facts, time=started, submission=found.submission, first_seed=seed, code=code_digest()))


def _name(study: str) -> str:
    from knockout.cli.loading import study_name

    return study_name(study)


def _tell(sweep: Sweep, *, order: Order, workspace: Workspace) -> bool:
    """Write the page and tell whoever wants to know; whether somebody could not be told."""
    from knockout.errors import KnockoutError
    from knockout.report.changes import write_pages
    from knockout.submission.telling import tell

    folder = workspace.folder / "sweeps" / f"{order.day:%Y%m%d-%H%M%S}"
    page = write_pages(sweep, folder=folder)
    for change in sweep.changes:
        print(f"{change.kind}: {change.study}: {change.sentence}")
    print(f"changes  {page}")
    if not (sweep.changes or sweep.missed):
        return False
    try:
        tell(order.on_change, data={**sweep.to_dict(), "page": str(page)})
    except KnockoutError as error:
        print(f"knockout: {error}", file=sys.stderr)
        return True
    return False
