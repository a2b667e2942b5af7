"""`knockout run`: plan on the terminal, servers, the road, verdicts, links."""

from __future__ import annotations

import logging
from dataclasses import replace

from rich.console import Console

from knockout import services
from knockout.cli.ending import stopping
from knockout.cli.flows import load_flow
from knockout.cli.watching import Watcher
from knockout.declare.load import Loaded
from knockout.errors import ServiceError
from knockout.ledger.workspace import Workspace
from knockout.report.terminal import control_lines, fairness_lines, metric_table, tuning_lines, verdict_table
from knockout.services.catalog import PAGES
from knockout.submission import plain
from knockout.submission.concluding import Concluding, open_variants
from knockout.submission.options import Options
from knockout.submission.road import Road
from knockout.submission.tables import cell_table
from knockout.training.stop import Stop

log = logging.getLogger(__name__)


def run_study(loaded: Loaded, *, workspace: Workspace, options: Options, prefect: bool) -> int:
    """Run a study in this process; the exit code."""
    console = Console()
    services.apply_quiet_environment(workspace.folder)
    server = services.begin(workspace.folder, name="prefect") if prefect else None
    try:
        with Watcher(console) as watcher, stopping(say=watcher.note) as signals:
            road = Road(loaded, workspace=workspace, options=options, listener=watcher, stop=Stop())
            with road:
                signals.call(road.note_interrupt)
                watcher.note(f"{loaded.study.study}: {loaded.study.question}")
                console.print(cell_table(road.plan))
                concluding = _submit(road, server=server, watcher=watcher)
    finally:
        if server is not None:
            server.stop()
    console.print(metric_table(concluding.records, console=console))
    said, searches = concluding.facts, concluding.facts["study"]["tuned"]
    for line in (*tuning_lines(searches), *control_lines(concluding.judgement.controls), *fairness_lines(said["fairness"])):
        console.print(line, soft_wrap=True)
    console.print(verdict_table(concluding.judgement.verdicts, console=console))
    if concluding.state == "timed-out":
        console.print(f"stopped  at {concluding.reason}; the same command goes on from here", soft_wrap=True)
    _open_claims(console, loaded=loaded, concluding=concluding)
    _links(console, concluding=concluding, workspace=workspace, mlflow=options.mlflow, missed=road.missed is not None)
    return 0 if concluding.state == "done" else 1


def _submit(road: Road, *, server: services.Borrowing | None, watcher: Watcher) -> Concluding:
    """Through Prefect while its server answers; else the same road without it, saying so."""
    if server is None:
        return plain.submit(road)
    watcher.note("waiting for Prefect's server …")
    try:
        url = server.wait()
    except ServiceError as error:
        watcher.note(f"{error}\nGoing on without Prefect.")
        return plain.submit(road)
    concluding = _through(url, road=road, watcher=watcher)
    try:
        load_flow("reconciling", server=url).confirm(road.ledger, submission=road.submission)
    except ServiceError as error:
        log.debug("%s; the next command tells it", error)
    return concluding


def _through(url: str, *, road: Road, watcher: Watcher) -> Concluding:
    try:
        load_flow("reconciling", server=url).reconcile(road.ledger)
        return load_flow("study", server=url).submit(road)
    except ServiceError as error:
        watcher.note(f"{error}\nGoing on without Prefect.")
        return plain.submit(road)


def _open_claims(console: Console, *, loaded: Loaded, concluding: Concluding) -> None:
    """Where further looks are declared and a claim is open, the command that takes them."""
    study, changes = loaded.study, loaded.overrides
    if study.settle is None or changes.settle or not open_variants(study, judgement=concluding.judgement):
        return
    command = f"knockout run {study.study} {replace(changes, settle=True).arguments}"
    console.print(f"open     `{command}` goes on to {study.settle[0]} seeds where a claim is open", soft_wrap=True)


def _links(console: Console, *, concluding: Concluding, workspace: Workspace, mlflow: bool, missed: bool) -> None:
    console.print(f"report   {concluding.report}", soft_wrap=True)
    if mlflow and missed:
        console.print("mlflow   lacks what is named above; the next command writes it, or `knockout doctor` says why not")
    elif mlflow:
        running = [server for server in services.status(workspace.folder) if server.name == "mlflow" and server.healthy]
        where = f"{running[0].url}{PAGES['mlflow']}" if running else "`knockout up` shows the curves of every run"
        console.print(f"mlflow   {where}", soft_wrap=True)
