"""Commands that decide the documents' claims and log what came of them: reproduce, results."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from knockout.cli.options import AsJson, Home, Mlflow, Prefect, RunSeconds, Settle, Slots, StudySeconds
from knockout.errors import InputError

if TYPE_CHECKING:
    from knockout.declare.claims_file import Kind as CalculatedKind
    from knockout.declare.claims_file import LoadedClaim


class Kind(StrEnum):
    """How a claim is decided."""

    COUNT = "count"
    IDENTITY = "identity"
    TRAIN = "train"


_ARTICLES = {Kind.COUNT: "a count", Kind.IDENTITY: "an identity", Kind.TRAIN: "one that training decides"}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(short_help="Decide the claims: by calculation, or with --kind train by training.")(reproduce)
    app.command(short_help="Show the verdicts of studies in full; --write logs them.")(results)


def reproduce(
    kind: Annotated[list[Kind] | None, typer.Option("--kind", help="Only claims decided so; repeatable.")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", metavar="NAME", help="Only this claim, with its further readings ID.*, or this study; repeatable."
        ),
    ] = None,
    size: Annotated[str | None, typer.Option("--size", help="Train at this size instead of each study's own.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --kind train: show what would run, and about how long.")
    ] = False,
    settle: Settle = False,
    pool: Annotated[
        str | None, typer.Option("--pool", metavar="POOL", help="Have a work pool train [default: train here].")
    ] = None,
    slots: Slots = None,
    run_seconds: RunSeconds = None,
    study_seconds: StudySeconds = None,
    prefect: Prefect = True,
    mlflow: Mlflow = True,
    workspace: Home = None,
    as_json: AsJson = False,
) -> None:
    """Decide the claims of ablations/: counts and identities by calculation, the studies' claims by training.

    Calculation is done at once. Training is started by `--kind train` alone: every chosen study runs to its verdicts, one
    after the other, and what has a result is reused; a study runs whole also for one claim. Otherwise the verdicts that the
    workspace has are shown. A refuted claim is a result, not a failure; the exit code is 1 where a study failed or was
    refused.
    """
    from knockout.cli.training_claims import Execution, check_names, refusals, show_plans, show_trained, train_all
    from knockout.declare.claimed import choose_studies, claimed_studies
    from knockout.declare.claims_file import load_claims

    kinds, names = kind or list(Kind), only or []
    starting = Kind.TRAIN in (kind or ())
    if dry_run and not starting:
        raise InputError("--dry-run shows what `--kind train` would run: give both")
    _check_pool(pool, starting=starting, slots=slots, prefect=prefect)
    claims, studies = load_claims(), claimed_studies(size=size)
    check_names(names, claims=claims, studies=studies)
    chosen = _chosen(claims, kinds=kinds, names=names)
    training = choose_studies(studies, names=names) if Kind.TRAIN in kinds else []
    if not chosen and not training:
        raise InputError(f"none of these claims is {' or '.join(_ARTICLES[item] for item in kinds)}")
    if dry_run:
        _end(show_plans(training, workspace=workspace, as_json=as_json))
    rows, missed = _calculate(chosen, silent=as_json) if chosen else [], list[str]()
    if training:
        execution = Execution(
            settle=settle,
            slots=slots,
            run_seconds=run_seconds,
            study_seconds=study_seconds,
            prefect=prefect,
            mlflow=mlflow,
            workspace=workspace,
            pool=pool,
        )
        missed = train_all(training, execution=execution, silent=as_json) if starting else refusals(training)
        rows += show_trained(training, workspace=workspace, silent=as_json)
    if as_json:
        print(json.dumps(rows, indent=1))
    _end(missed)


def results(
    studies: Annotated[
        list[str] | None, typer.Argument(metavar="[STUDY]...", help="Names in ablations/ [default: every study there].")
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Write them into ablations/RESULTS.md, newest first.")] = False,
    workspace: Home = None,
) -> None:
    """Show what studies gave, from the workspace's ledger: verdicts, machine, versions, cost, and the command for it.

    There is a section for each study and size. `--write` replaces the sections of the same study, size and day in
    ablations/RESULTS.md of the current folder, and keeps all others; it says what changed since the section of the day
    before, and calls that one superseded.
    """
    from knockout.cli.training_claims import results_of
    from knockout.report.results import show, write_log

    log = Path("ablations") / "RESULTS.md"
    if write and not log.parent.is_dir():
        raise InputError(f"{log} cannot be written: there is no folder ablations/ here; go to the project's folder")
    found = results_of(studies or (), workspace=workspace)
    for line in found.left_out:
        print(line, file=sys.stderr)
    if not write:
        print(show(found.sections), end="")
        return
    write_log(log, sections=found.sections, declared=found.declared)
    print(f"{log}: {len(found.sections)} section{'' if len(found.sections) == 1 else 's'} written")


def _check_pool(pool: str | None, *, starting: bool, slots: int | None, prefect: bool) -> None:
    """Refuse a pool that nothing is for, and what its workers decide."""
    from knockout.cli.pool_names import check_pool_name

    if pool is None:
        return
    check_pool_name(pool)
    if not starting:
        raise InputError("--pool has studies trained, which only `--kind train` starts: give both")
    if slots is not None or not prefect:
        raise InputError("--slots and --no-prefect are for training here; the workers of a pool have their own slots")


def _end(missed: Sequence[str]) -> NoReturn:
    """Say which studies did not come to their verdicts, and end with the exit code for it."""
    for line in missed:
        print(line, file=sys.stderr)
    sys.exit(1 if missed else 0)


def _chosen(claims: Sequence[LoadedClaim], *, kinds: Sequence[Kind], names: Sequence[str]) -> tuple[LoadedClaim, ...]:
    """The claims of calculation that are asked for."""
    from knockout.declare.claimed import stands_for
    from knockout.declare.claims_file import choose

    ids = [name for name in names if any(stands_for(name, item.claim.id) for item in claims)]
    calculated: dict[Kind, CalculatedKind] = {Kind.COUNT: "count", Kind.IDENTITY: "identity"}
    decided: list[CalculatedKind] = [calculated[kind] for kind in calculated if kind in kinds]
    return choose(claims, kinds=decided, ids=ids) if decided and (ids or not names) else ()


def _calculate(chosen: Sequence[LoadedClaim], *, silent: bool) -> list[dict[str, Any]]:
    """Decide claims by calculation and show them, unless silent; as plain data."""
    from rich.console import Console

    from knockout.declare.claims_file import titles_of
    from knockout.judge.calculation.calculating import calculate
    from knockout.report.calculated import calculated_verdicts, summary

    verdicts = list(calculate(chosen))
    if not silent:
        console = Console()
        console.print(calculated_verdicts(verdicts, console=console), soft_wrap=not console.is_terminal)
        print(summary(verdicts))
        if titles := titles_of(chosen):
            print("; ".join(f"{name} = {title}" for name, title in titles.items()))
    return [verdict.to_dict() for verdict in verdicts]
