"""Commands for work on a pool: submit, worker."""

from __future__ import annotations

import os
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
    from knockout.ledger.store import Submission
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
    from knockout.cli.prefect_server import prefect_address
    from knockout.declare.load import Overrides, find_study, load_study
    from knockout.ledger.workspace import open_workspace
    from knockout.submission.options import Options
    from knockout.submission.requests import Request
    from knockout.submission.road import new_submission

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
    )
    handed = load_flow("submitting", server=prefect_address(place), retries=PATIENT).submit(request, workspace=place)
    print(f"submitted {request.submission}\naddress   {handed.address}")
    if not handed.workers:
        print(f"no worker of pool '{pool}' is online: `knockout worker --pool {pool}` is one", file=sys.stderr)
    if wait:
        sys.exit(_await_verdicts(request.submission, workspace=place))


def worker(
    pool: Pool = "knockout",
    slots: Slots = None,
    workspace: Home = None,
) -> None:
    """Work for a pool on this machine until it is stopped: the Prefect server is `knockout up`'s, or $PREFECT_API_URL's.

    The pool's runs lie in the workspace that they were submitted with, which must be the same folder on every machine.
    """
    from knockout.cli.flows import PATIENT, load_flow
    from knockout.cli.prefect_server import prefect_address
    from knockout.ledger.workspace import open_workspace
    from knockout.services import catalog
    from knockout.services.processes import free_port

    place = open_workspace(workspace)
    server = prefect_address(place)
    load_flow("deploying", server=server, retries=PATIENT).deploy(pool=pool)
    serving, port = catalog.worker(pool=pool, slots=slots, prefect=server), free_port()
    command, environment = serving.command(place.folder, port), serving.environment(place.folder, port, False)
    print(f"working for pool '{pool}' of {server}; Ctrl-C ends it", flush=True)
    os.execve(command[0], command, environment)


def _await_verdicts(submission: str, *, workspace: Workspace) -> int:
    """Wait until a submission has ended, and show what it came to; the exit code."""
    from knockout.cli.flows import PATIENT, load_flow
    from knockout.cli.prefect_server import prefect_address
    from knockout.ledger.store import Ledger

    ledger = Ledger(workspace)
    flows = load_flow("submitting", server=prefect_address(workspace), retries=PATIENT)
    while True:
        ledger.reconcile()
        known = ledger.submission(submission)
        if known is not None and known.state != "running":
            return _show(ledger, known)
        if known is None and (state := flows.flow_state(submission)) is not None and state.final:
            print(f"ended before it began: {state.name}: {state.message or 'see its page in Prefect'}", file=sys.stderr)
            return 1
        time.sleep(POLL_SECONDS)


def _show(ledger: object, ended: Submission) -> int:
    from knockout.ledger.store import Ledger

    assert isinstance(ledger, Ledger)
    print(f"{ended.study}: {ended.state}{f': {ended.reason}' if ended.reason else ''}")
    facts = ledger.facts_of(ended.submission)
    for verdict in facts["verdicts"] if facts is not None else ():
        print(f"{verdict['claim']} {verdict['size']} {verdict['outcome']}: {verdict['reason']}")
    if facts is not None:
        print(f"report   {ledger.workspace.report(ended.study, arguments=facts['study']['arguments']) / 'report.html'}")
    return 0 if ended.state == "done" else 1
