"""Commands for work on a pool: submit, worker."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from knockout.cli.options import (
    Devices,
    FromSeed,
    Home,
    Mlflow,
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

if TYPE_CHECKING:
    from knockout.ledger.store import Ledger, Submission
    from knockout.ledger.workspace import Workspace

POLL_SECONDS = 1.0
Pool = Annotated[str, typer.Option("--pool", metavar="POOL", help="The work pool that takes the runs.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(short_help="Hand a study to a work pool; answers at once.")(submit)
    app.command(short_help="Work for a pool on this machine, until stopped.")(worker)


def submit(
    study: StudyName,
    pool: Pool = "knockout",
    size: Size = None,
    seeds: Seeds = None,
    set_: Set = None,
    settle: Settle = False,
    from_seed: FromSeed = None,
    devices: Devices = None,
    strategy: Strategy = None,
    run_seconds: RunSeconds = None,
    study_seconds: StudySeconds = None,
    mlflow: Mlflow = True,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the verdicts; the exit code is that of `run`.")] = False,
    workspace: Home = None,
) -> None:
    """Hand a study to a work pool: its workers train the runs, and what has a result already is reused.

    Prints where the submission can be watched, and returns at once. `knockout status STUDY` and `knockout stop STUDY` work
    on it from any machine that has the workspace.
    """
    from knockout.account.matching import plan_study
    from knockout.cli.flows import PATIENT, load_flow
    from knockout.cli.pool_names import check_pool, check_pool_name, say_unserved
    from knockout.cli.prefect_server import prefect_address
    from knockout.declare.load import Overrides, find_study, load_study
    from knockout.ledger.workspace import open_workspace
    from knockout.submission.options import Options
    from knockout.submission.requests import Request, declarations_of
    from knockout.submission.road import new_submission

    check_pool_name(pool)
    place = open_workspace(workspace)
    options = Options(
        run_seconds=run_seconds, study_seconds=study_seconds, mlflow=mlflow, devices=devices, strategy=strategy
    )
    overrides = Overrides(size=size, seeds=seeds, settings=tuple(set_ or ()), settle=settle, from_seed=from_seed)
    found = find_study(study)
    plan = plan_study(load_study(found, overrides=overrides))
    options.parallelism(plan.study.runtime, cells=plan.cells)  # what is wrong is told here, not there
    request = Request(
        new_submission(),
        study=str(found.absolute()) if str(found) == study else study,
        project=str(Path.cwd()),
        pool=pool,
        handed=time.time(),
        overrides=overrides,
        options=options,
        declarations=declarations_of(Path.cwd(), study=found, workspace=place),
    )
    check_pool(pool, server=(server := prefect_address(place)))
    handed = load_flow("pools.submitting", server=server, retries=PATIENT).submit(request, workspace=place)
    print(f"submitted {request.submission}\naddress   {handed.address}")
    if not handed.workers:
        say_unserved(pool)
    if wait:
        sys.exit(_wait(request.submission, pool=pool, workspace=place))


def worker(
    pool: Pool = "knockout",
    slots: Slots = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take the pool out of the Prefect server instead.")] = False,
    workspace: Home = None,
) -> None:
    """Work for a pool on this machine until it is stopped: the Prefect server is `knockout up`'s, or $PREFECT_API_URL's.

    The pool's runs lie in the workspace that they were submitted with, the same folder on every machine; machines that have
    a database and a store in common work each in a workspace of its own.
    """
    from knockout.cli.flows import PATIENT, load_flow
    from knockout.cli.pool_names import check_pool_name
    from knockout.cli.prefect_server import prefect_address
    from knockout.ledger.workspace import open_workspace
    from knockout.services import catalog
    from knockout.services.processes import free_port

    check_pool_name(pool)
    place = open_workspace(workspace)
    server = prefect_address(place)
    if remove:
        count = load_flow("pools.inventory", server=server, retries=PATIENT).remove(pool)
        print(f"{pool}: removed, with {count} deployments")
        return
    load_flow("pools.inventory", server=server, retries=PATIENT).check_kind(pool)
    load_flow("pools.deploying", server=server, retries=PATIENT).deploy(pool=pool)
    serving, port = catalog.worker(pool=pool, slots=slots, prefect=server), free_port()
    command, environment = serving.command(place.folder, port), serving.environment(place.folder, port, False)
    print(f"working for pool '{pool}' of {server}; Ctrl-C ends it", flush=True)
    os.execve(command[0], command, environment)


def _wait(submission: str, *, pool: str, workspace: Workspace) -> int:
    """Wait for the verdicts; the exit code. Ctrl-C ends the waiting, SIGTERM, as of a stopped sweep, the submission."""
    from knockout.cli.signals import INTERRUPTED
    from knockout.ledger.stops import request_stop
    from knockout.ledger.store import Ledger
    from knockout.submission.requests import withdraw

    ledger = Ledger(workspace)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(INTERRUPTED))
    try:
        return _await_verdicts(submission, pool=pool, ledger=ledger)
    except SystemExit:
        if ledger.submission(submission) is None:
            withdraw(submission, ledger=ledger)
        else:
            request_stop(ledger, submissions=[submission])
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _await_verdicts(submission: str, *, pool: str, ledger: Ledger) -> int:
    """Wait until a submission has ended, show how it goes and what it came to; the exit code."""
    from knockout.cli.flows import PATIENT, load_flow
    from knockout.cli.following import Follower
    from knockout.cli.prefect_server import prefect_address
    from knockout.ledger.lost import TAKE_OVER_SECONDS, goes_on

    workspace = ledger.workspace
    flows = load_flow("pools.submitting", server=prefect_address(workspace), retries=PATIENT)
    follower, ended = Follower(ledger, submission, pool), 0.0
    while True:
        ledger.reconcile()
        known = ledger.submission(submission)
        follower.look(known)
        if known is not None and not goes_on(known):
            return _show(ledger, known)
        state = flows.flow_state(submission) if known is None else None
        ended = time.monotonic() if state is None or not state.final else ended
        if state is not None and state.final and not (state.lost and time.monotonic() - ended < TAKE_OVER_SECONDS):
            print(f"ended before it began: {state.name}: {state.message or 'see its page in Prefect'}", file=sys.stderr)
            return 1
        time.sleep(POLL_SECONDS)


def _show(ledger: Ledger, ended: Submission) -> int:
    from knockout.ledger.aside import report_folder
    from knockout.report.html import write_html

    print(f"{ended.study}: {ended.state}{f': {ended.reason}' if ended.reason else ''}")
    facts = ledger.facts_of(ended.submission)
    for verdict in facts["verdicts"] if facts is not None else ():
        print(f"{verdict['claim']} {verdict['size']} {verdict['outcome']}: {verdict['reason']}")
    if facts is not None:
        folder = report_folder(ledger.workspace, study=ended.study, arguments=facts["study"]["arguments"])
        print(f"report   {write_html(facts, folder=folder)}")  # another machine may have written its own
    return 0 if ended.state == "done" else 1
