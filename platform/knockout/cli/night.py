"""One sweep: studies with fresh seeds, one after the other, each in a process of its own; what changed, and who is told.

The invariant: whatever becomes of a study, the next one runs, and the page says what became of each.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from zoneinfo import ZoneInfo

from knockout.cli.loading import study_name
from knockout.cli.unattended import Said, hear_command
from knockout.declare.load import Overrides
from knockout.declare.schedules import OnChange, TellNobody, studies_of
from knockout.errors import KnockoutError
from knockout.history.changes import changes
from knockout.history.nights import code_digest, first_seed_of, num_nights, repeats
from knockout.history.rows import Row, rows_of
from knockout.history.table import append, read
from knockout.ledger.store import Ledger
from knockout.ledger.workspace import Workspace, make_folder
from knockout.report.changes import Sweep, write_pages
from knockout.submission.schedules import find_schedule
from knockout.submission.telling import tell

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
    """When it began, in the zone that says which day it was; its folder is named in UTC, and so sorts by time."""
    on_change: OnChange


@dataclass(frozen=True)
class Night:
    """A sweep that was made, and its page."""

    sweep: Sweep
    page: Path


def by_hand(studies: Sequence[str], *, size: str | None, pool: str | None) -> Order:
    """The sweep of studies that are found from the current folder. Raises InputError: a pattern fits no study."""
    found = studies_of(studies, folder=Path.cwd())
    return Order("A sweep by hand", found, size, pool, datetime.now().astimezone(), TellNobody())


def scheduled(name: str, *, workspace: Workspace) -> Order:
    """The sweep of a schedule. Raises InputError: there is none of that name, or a pattern fits no study."""
    known = find_schedule(name, workspace=workspace)
    wanted = known.schedule
    found = studies_of(wanted.studies, folder=Path(known.project))
    day = datetime.now(ZoneInfo(wanted.timezone))
    return Order(f"The sweep {name}", found, wanted.size, wanted.pool, day, wanted.on_change)


def spend(order: Order, *, workspace: Workspace, from_seed: int | None = None) -> Night:
    """Run every study, hold what they came to against the history, write the page, and tell whoever wants to know.

    `from_seed` is the first seed; None: the day's own. Raises KeyboardInterrupt when it is to stop.
    """
    sweep = _sweep(order, seed=from_seed if from_seed is not None else first_seed_of(order.day.date()), workspace=workspace)
    folder = _new_folder(workspace.folder / "sweeps" / f"{order.day.astimezone(UTC):%Y%m%d-%H%M%S}")
    page = write_pages(sweep, folder=folder)
    for change in sweep.changes:
        print(f"{change.kind}: {change.study}: {change.sentence}")
    if (untold := _tell(sweep, order=order, page=page)) is not None:
        sweep = replace(sweep, untold=untold)
        write_pages(sweep, folder=folder)
        print(f"knockout: {untold}", file=sys.stderr)
    print(f"changes  {page}", flush=True)
    return Night(sweep, page)


def _sweep(order: Order, *, seed: int, workspace: Workspace) -> Sweep:
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
    given = ["--from-seed", str(seed), *(["--size", order.size] if order.size is not None else [])]
    where = ["submit", study, "--wait", "--pool", order.pool] if order.pool is not None else ["run", study]
    began = time.time()
    ended = hear_command([*where, *given, "--workspace", str(workspace.folder)])
    if ended.code == REFUSED:
        return f"refused (exit code {ended.code}): {ended.words}"
    ledger, name = Ledger(workspace), study_name(study)
    try:
        if ended.code != 0:
            return _why(ended, name=name, began=began, ledger=ledger)
        found = next((one for one in ledger.submissions(name) if one.state == "done"), None)
        facts = ledger.facts(name, arguments=Overrides(size=order.size, from_seed=seed).arguments)
    finally:
        ledger.close()
    if found is None or facts is None:
        return "there is no report of it"
    return list(rows_of(facts, time=started, submission=found.submission, first_seed=seed, code=code_digest()))


def _why(ended: Said, *, name: str, began: float, ledger: Ledger) -> str:
    """Why a study came to no verdicts: what the ledger says of its submission, or else the command's last words."""
    newest = next((one for one in ledger.submissions(name) if one.created >= began), None)
    if newest is None or newest.state == "running":
        return f"failed (exit code {ended.code}): {ended.words}"
    return f"{newest.state} (exit code {ended.code}): {newest.reason or ended.words}"


def _new_folder(first: Path) -> Path:
    """A folder of its own, also where two sweeps begin in one second."""
    make_folder(first.parent)
    for number in count(1):
        folder = first if number == 1 else first.with_name(f"{first.name}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise AssertionError("numbers do not end")


def _tell(sweep: Sweep, *, order: Order, page: Path) -> str | None:
    """Tell whoever wants to know, when there is something to tell; why that could not be."""
    if not (sweep.changes or sweep.missed):
        return None
    try:
        tell(order.on_change, data={**sweep.to_dict(), "page": str(page)})
    except KnockoutError as error:
        return str(error)
    return None
