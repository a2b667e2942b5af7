"""Commands around a submission: run, report, why."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from knockout.cli.options import (
    AsJson,
    CheckPruning,
    Devices,
    FromSeed,
    Home,
    Mlflow,
    Prefect,
    RunSeconds,
    Seeds,
    Set,
    Settle,
    Size,
    Slots,
    Strategy,
    StudyName,
    StudySeconds,
)
from knockout.ledger.reserve import LOOKING


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(short_help="Run a study to its verdicts.")(run)
    app.command(short_help="Write a study's report anew; --json for data.")(report)
    app.command(short_help="Show what made a run a new one.")(why)


def run(
    study: StudyName,
    size: Size = None,
    seeds: Seeds = None,
    set_: Set = None,
    settle: Settle = False,
    from_seed: FromSeed = None,
    slots: Slots = None,
    devices: Devices = None,
    strategy: Strategy = None,
    run_seconds: RunSeconds = None,
    study_seconds: StudySeconds = None,
    check_pruning: CheckPruning = False,
    prefect: Prefect = True,
    mlflow: Mlflow = True,
    workspace: Home = None,
) -> None:
    """Run a study to its verdicts. What has a result already is reused."""
    from knockout.cli.loading import load
    from knockout.cli.submitting import run_study
    from knockout.ledger.workspace import open_workspace
    from knockout.submission.options import Options

    loaded = load(study, size=size, seeds=seeds, settings=set_, settle=settle, from_seed=from_seed)
    options = Options(
        slots=slots,
        run_seconds=run_seconds,
        study_seconds=study_seconds,
        check_pruning=check_pruning,
        mlflow=mlflow,
        prefect=prefect,
        devices=devices,
        strategy=strategy,
    )
    sys.exit(run_study(loaded, workspace=open_workspace(workspace), options=options, prefect=prefect))


def report(
    study: StudyName,
    size: Size = None,
    seeds: Seeds = None,
    set_: Set = None,
    settle: Settle = False,
    from_seed: FromSeed = None,
    workspace: Home = None,
    as_json: AsJson = False,
) -> None:
    """Write a study's report anew from its run files, and print where it is, or the same facts as data.

    Without options it is the report of the study as its file declares it; where there is none, the newest.
    """
    from knockout.cli.loading import report_commands, study_name
    from knockout.cli.settling import set_right
    from knockout.declare.load import Overrides, find_study
    from knockout.errors import InputError, quoted
    from knockout.ledger.aside import report_folder
    from knockout.ledger.store import Ledger
    from knockout.ledger.workspace import open_workspace
    from knockout.report.html import write_html

    place = open_workspace(workspace, reserve_left=LOOKING)
    ledger = Ledger(place)
    set_right(ledger)
    overrides = Overrides(size=size, seeds=seeds, settings=tuple(set_ or ()), settle=settle, from_seed=from_seed)
    name, arguments = study_name(study), overrides.arguments
    reported = ledger.reported(name)
    if not arguments and reported and "" not in reported:
        arguments = reported[0]
        print(f"the newest report, that of `knockout report {study} {arguments}`", file=sys.stderr)
    facts = ledger.facts(name, arguments=arguments)
    if facts is None:
        if others := report_commands(name, reported=reported):
            raise InputError(f"{quoted(name)} has no report in {place.folder} with these settings, but {others}")
        find_study(study)
        command = f"knockout run {study} {arguments}".strip()
        raise InputError(f"no report of {quoted(name)} in {place.folder}: run it first with `{command}`")
    for note in _outdated(facts, study=study, arguments=arguments, newest=reported[0]):
        print(note, file=sys.stderr)
    if as_json:
        print(json.dumps(facts, indent=1))
    else:
        print(write_html(facts, folder=report_folder(place, study=name, arguments=arguments)))


def _outdated(facts: Mapping[str, Any], *, study: str, arguments: str, newest: str) -> Iterator[str]:
    """What makes a report not the last word."""
    from knockout.declare.load import find_study
    from knockout.errors import InputError
    from knockout.submission.reproducing import declared_as

    if newest != arguments:
        yield f"a newer report is that of `{f'knockout report {study} {newest}'.strip()}`"
    try:
        path = find_study(study)
    except InputError:
        return  # the file is gone; its report is all that there is
    if path.exists() and not declared_as(facts, text=path.read_text("utf-8-sig")):
        command = f"knockout run {study} {arguments}".strip()
        yield f"the study's file has changed since these verdicts: `{command}` judges it as it is now"


def why(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's identity, or the start of one.")],
    workspace: Home = None,
) -> None:
    """Show what made a run a new one: how its meaning differs from the nearest run of the same seed."""
    from knockout.ledger.identity import difference
    from knockout.ledger.store import Ledger
    from knockout.ledger.workspace import open_workspace

    ledger = Ledger(open_workspace(workspace, reserve_left=LOOKING))
    found = ledger.find(run)
    others = ledger.nearest(found.meaning, identity=found.identity)
    print(f"run {found.identity}: {found.state}{f' ({found.reason})' if found.reason else ''}")
    if not others:
        print("no other run of its seed is known: it was the first")
        return
    closest = min(others, key=lambda other: len(difference(other.meaning, found.meaning)))
    print(f"nearest run of the same seed: {closest.identity}; it differs in")
    for path, (before, after) in difference(closest.meaning, found.meaning).items():
        print(f"  {path}: {before} -> {after}")
