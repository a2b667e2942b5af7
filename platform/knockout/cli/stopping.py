"""`knockout stop`: ask running submissions to end, from any terminal on the same workspace, and wait until they have."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from knockout.cli.options import Home

if TYPE_CHECKING:
    from knockout.ledger.store import Ledger, Submission

POLL_SECONDS = 0.5
PATIENCE_SECONDS = 150.0
"""A run has some seconds for its step before it is killed, and the mirror to MLflow a minute for what is left."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Ask a study's running submissions to end.")(stop)


def stop(
    name: Annotated[str, typer.Argument(metavar="STUDY|SUBMISSION", help="A study, its file, or one submission of it.")],
    workspace: Home = None,
) -> None:
    """Ask the running submissions of a study, or the one named, to end as Ctrl-C would: runs stop with a checkpoint."""
    from knockout.cli.loading import study_name
    from knockout.cli.settling import set_right
    from knockout.ledger.stops import request_stop
    from knockout.ledger.store import Ledger
    from knockout.ledger.workspace import open_workspace

    ledger = Ledger(open_workspace(workspace))
    set_right(ledger)
    wanted = study_name(name)
    known = ledger.submissions()
    running = [one for one in known if one.state == "running" and wanted in (one.study, one.submission)]
    called_off = _call_off(ledger, name=wanted, known=known)
    for line in called_off:
        print(line)
    if not running:
        if not called_off:
            check_known(wanted, submissions=known)
            print(f"nothing of '{wanted}' is running")
        return
    request_stop(ledger, submissions=[one.submission for one in running])
    for ended in _await_end(ledger, names=[one.submission for one in running]):
        print(f"{ended.study} {ended.submission}: {ended.state}{f': {ended.reason}' if ended.reason else ''}")


def _call_off(ledger: Ledger, *, name: str, known: Sequence[Submission]) -> list[str]:
    """Take back what was handed to a pool and no worker has begun; a line for each."""
    from knockout.cli.flows import PATIENT, load_flow
    from knockout.cli.prefect_server import prefect_address
    from knockout.submission.requests import waiting_requests, withdraw

    names = frozenset(one.submission for one in known)
    waiting = waiting_requests(ledger.workspace, known=names)
    found = [one for one in waiting if name in (one.study_name, one.submission)]
    for one in found:
        withdraw(one.submission, ledger=ledger)
        server = prefect_address(ledger.workspace)
        load_flow("submitting", server=server, retries=PATIENT).call_off(one.submission, reason="stopped by `knockout stop`")
    return [f"{one.study_name} {one.submission}: cancelled before a worker began it" for one in found]


def check_known(name: str, *, submissions: Sequence[Submission]) -> None:
    """Refuse a name that is neither a study's nor a submission's."""
    from knockout import project
    from knockout.declare.problems import nearest
    from knockout.errors import InputError

    studies = sorted({one.study for one in submissions} | set(project.names("ablations")))
    names = [one.submission for one in submissions]
    if name not in (*studies, *names):
        there = f"there are {', '.join(studies)}" if studies else "there are none"
        raise InputError(f"no study or submission '{name}' ({there}){nearest(name, [*studies, *names])}")


def _await_end(ledger: Ledger, *, names: Collection[str]) -> list[Submission]:
    """The submissions, once none is running; one whose process dies meanwhile has ended too.

    Raises:
        RunError: some have not ended in time.
    """
    from knockout.errors import RunError

    until, told = time.monotonic() + PATIENCE_SECONDS, -1
    while True:
        ledger.reconcile()
        asked = [one for one in ledger.submissions() if one.submission in names]
        left = [one for one in asked if one.state == "running"]
        if len(left) != told:
            told = len(left)
            _say(f"asked to stop: {len(asked) - told} of {len(asked)} ended", over=not left)
        if not left:
            return asked
        if time.monotonic() > until:
            who = ", ".join(f"{one.submission} ({one.owner})" for one in left)
            raise RunError(f"asked to stop, but after {PATIENCE_SECONDS:g} s still running: {who}")
        time.sleep(POLL_SECONDS)


def _say(line: str, *, over: bool) -> None:
    """Progress on standard error: a line that is replaced on a terminal, lines elsewhere."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{'' if over else line}", end="", file=sys.stderr, flush=True)
    else:
        print(line, file=sys.stderr, flush=True)
