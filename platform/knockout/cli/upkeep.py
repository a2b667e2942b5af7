"""Commands that keep a workspace in order: doctor, gc."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from knockout.cli.options import AsJson, Home
from knockout.ledger.reserve import FREEING, LOOKING

if TYPE_CHECKING:
    from knockout.ledger.store import Ledger
    from knockout.ledger.workspace import Workspace
    from knockout.tracking.removal import Remover
    from knockout.upkeep.doctor import Diagnosis, Repaired
    from knockout.upkeep.sweeping import Candidate, Staying

SHOWN = 100
"""Lines of a list; what is beyond is counted."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(short_help="Find what is wrong in the workspace; --repair sets it right.")(doctor)
    app.command(short_help="Show what may go from the workspace, and what that frees; --yes deletes it.")(gc)


def doctor(
    repair: Annotated[bool, typer.Option("--repair", help="Set right what was found.")] = False,
    workspace: Home = None,
    as_json: AsJson = False,
) -> None:
    """Find what is wrong in the workspace, and with --repair set it right. No result is ever deleted.

    Without --repair nothing is changed, except for what every command sets right first, and which is told: the leases of
    dead processes; in a copied or moved workspace, whose ledger it is, and that what is in work there is not so here; where
    a Prefect server runs, how submissions ended.
    What belongs nowhere is moved to lost+found/. Exit code 0: nothing is wrong, or all was set right; else 1.
    """
    from knockout.ledger.workspace import open_workspace
    from knockout.upkeep import doctor as room

    place = open_workspace(workspace, reserve_left=LOOKING)
    diagnosis = room.diagnose(place)
    settled = [*diagnosis.settled, *_in_prefect(diagnosis, workspace=place)]
    repaired = list(room.repair(diagnosis, workspace=place)) if repair else []
    findings = [one.finding for one in repaired] if repair else list(diagnosis.findings)
    wrong = sum(one.problem is not None for one in repaired) if repair else len(findings)
    if as_json:
        print(json.dumps({"settled": settled, "findings": _plain(findings, repaired)}, indent=1))
        sys.exit(1 if wrong else 0)
    for line in settled:
        print(line)
    if repair:
        for one in repaired:
            became = "repaired" if one.problem is None else f"not repaired: {one.problem}"
            print(f"{one.finding.kind}: {one.finding.where}: {one.finding.what}; {became}")
    else:
        for finding in findings:
            remedy = finding.remedy if finding.repair is None else f"--repair {finding.remedy}"
            print(f"{finding.kind}: {finding.where}: {finding.what}; {remedy}")
    print(_summary(len(findings), wrong=wrong, folder=place.folder))
    sys.exit(1 if wrong else 0)


def _in_prefect(diagnosis: Diagnosis, *, workspace: Workspace) -> list[str]:
    """What a Prefect server was told, in words; nothing where the ledger itself is in question."""
    from knockout.cli.settling import set_right_in_prefect
    from knockout.ledger.store import Ledger

    if any(finding.kind == "ledger" for finding in diagnosis.findings):
        return []
    ledger = Ledger(workspace)
    try:
        return [f"{name}: Prefect was told how it ended" for name in set_right_in_prefect(ledger)]
    finally:
        ledger.close()


def gc(
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="AGE", help="Only what is older: 30d, 12h. Then lost+found/ too.")
    ] = None,
    larger_than: Annotated[
        str | None, typer.Option("--larger-than", metavar="SIZE", help="Only what takes more, each by itself: 1GB.")
    ] = None,
    state: Annotated[
        str | None, typer.Option("--state", metavar="STATE,…", help="Only runs in these states: failed,cancelled,pruned.")
    ] = None,
    weights: Annotated[bool, typer.Option("--weights", help="Of runs only weights and checkpoints.")] = False,
    cited: Annotated[bool, typer.Option("--cited", help="With --weights: also those of runs that reports cite.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete; without it nothing is.")] = False,
    workspace: Home = None,
    as_json: AsJson = False,
) -> None:
    """Show what may go from the workspace, and what that frees: runs that no report cites, unused corpora, temporary files.

    Never goes what the newest report of a study cites, a run in work or that a running study asks for, or a corpus that a
    kept run needs. Unless --older-than or --state is given, an unfinished run (failed, cancelled, timed-out) keeps its
    checkpoints for a day, for the command that goes on with it, and a result stays that no study has asked for since the
    ledger that knew of it was lost.
    With --yes it is deleted, from ledger, files and MLflow alike; a study that asks for it trains it again.
    """
    from knockout.ledger.store import Ledger
    from knockout.ledger.workspace import open_workspace
    from knockout.tracking.removal import Remover
    from knockout.training.untold import reconcile
    from knockout.upkeep import measures, sweeping

    wanted = sweeping.Wanted(
        older_than_seconds=measures.seconds(older_than) if older_than is not None else None,
        larger_than_bytes=measures.num_bytes(larger_than) if larger_than is not None else None,
        states=tuple(state.split(",")) if state is not None else None,
        weights_only=weights,
        cited_too=cited,
    )
    ledger = Ledger(open_workspace(workspace, reserve_left=FREEING if yes else LOOKING))
    reconcile(ledger)
    remover = Remover(ledger.workspace.folder)
    chosen = sweeping.candidates(ledger, wanted=wanted, remover=remover)
    left = "".join(f"{line}\n" for line in _left(sweeping.staying(ledger, wanted=wanted)))
    gone = _sweep(ledger, chosen=chosen, remover=remover) if yes else []
    if as_json:
        rows = [{**asdict(one), "paths": list(map(str, one.paths)), "deleted": one in gone} for one in chosen]
        print(json.dumps(rows, indent=1))
        print(left, end="", file=sys.stderr)
        return
    _print_candidates(chosen)
    print(left, end="")
    if not chosen:
        print("nothing may go")
    elif yes:
        print(_deleted(gone, chosen=chosen))
    else:
        print(f"{len(chosen)} may go, {measures.shown_bytes(sum(one.num_bytes for one in chosen))}; --yes deletes them")


def _sweep(ledger: Ledger, *, chosen: list[Candidate], remover: Remover) -> list[Candidate]:
    """What is gone. Raises WorkspaceError, which says how much is, where not all could be taken away."""
    from knockout.errors import WorkspaceError
    from knockout.upkeep.sweeping import sweep

    gone: list[Candidate] = []
    try:
        gone.extend(sweep(ledger, chosen=chosen, remover=remover))
    except WorkspaceError as refused:
        stays = f"{len(gone)} of {len(chosen)} deleted; a run that stays may have lost its weights and checkpoints"
        raise WorkspaceError(f"{refused}; {stays}") from None
    return gone


def _deleted(gone: list[Candidate], *, chosen: list[Candidate]) -> str:
    """How much is gone, and what became of the rest."""
    from knockout.ledger.kinds import found
    from knockout.upkeep.measures import shown_bytes

    others = [one for one in chosen if one not in gone]
    kept = [one for one in others if any(found(path) is not None for path in one.paths)]
    told = [f"deleted {len(gone)}, {shown_bytes(sum(one.num_bytes for one in gone))}"]
    told += [f"{len(kept)} in use by now, and kept"] if kept else []
    told += [f"{len(others) - len(kept)} gone before"] if len(kept) < len(others) else []
    return "; ".join(told)


def _left(staying: Staying) -> Iterator[str]:
    """How many runs stay, and why, in lines."""
    if staying.young:
        yield f"{_stay(staying.young, 'unfinished run')}, younger than a day; --state or --older-than lets them go"
    if staying.unasked:
        why = "for no study of this ledger has asked for them yet, and their reports may have been lost with an earlier one"
        yield f"{_stay(staying.unasked, 'result')}, {why}; --state or --older-than lets them go"
    if staying.cited:
        yield f"{_stay(staying.cited, 'run')}, cited by the newest reports of {', '.join(staying.studies)}"


def _stay(number: int, what: str) -> str:
    return f"1 {what} stays" if number == 1 else f"{number} {what}s stay"


def _print_candidates(chosen: list[Candidate]) -> None:
    from knockout.upkeep.measures import shown_age, shown_bytes

    for one in chosen[:SHOWN]:
        age, size = shown_age(one.age_seconds), shown_bytes(one.num_bytes)
        print(f"{one.kind:10} {one.name:32} {one.state:10} {age:>8} {size:>8}  {one.loses}".rstrip())
    if len(chosen) > SHOWN:
        print(f"… and {len(chosen) - SHOWN} more")


def _plain(findings: Any, repaired: list[Repaired]) -> list[dict[str, Any]]:
    ends: list[dict[str, Any]] = [{"repaired": one.problem is None, "problem": one.problem} for one in repaired]
    ends = ends or [{"repaired": False, "problem": None}] * len(findings)
    return [
        {"kind": found.kind, "where": found.where, "what": found.what, "remedy": found.remedy, **end}
        for found, end in zip(findings, ends, strict=True)
    ]


def _summary(found: int, *, wrong: int, folder: Any) -> str:
    if not found:
        return f"nothing is wrong in {folder}"
    return f"{found} found, {found - wrong} repaired" + (f", {wrong} not" if wrong else "")
