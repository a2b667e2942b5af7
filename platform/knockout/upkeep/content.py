"""Corpora, searches, reports and servers' records that nothing stands behind.

The invariant: what another process works on (a lock is held, a server runs) is left alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from knockout.corpus.building import abandoned
from knockout.corpus.prepare import check
from knockout.declare.tune import as_declared
from knockout.errors import CorpusError, ServiceError, WorkspaceError
from knockout.ledger.aside import FOLDER, note, set_aside
from knockout.ledger.identity import flatten
from knockout.ledger.inventory import Ask, Submitted, every_submission
from knockout.ledger.kinds import is_file, is_folder
from knockout.ledger.store import Ledger
from knockout.ledger.workspace import Workspace, write_json
from knockout.search.database_file import ANEW, NAME, damage, database
from knockout.services import state
from knockout.services.catalog import SERVERS, WORKER, Server
from knockout.services.database import find_database
from knockout.services.locks import acquired
from knockout.services.sqlite import parts
from knockout.upkeep.finding import Finding

if TYPE_CHECKING:
    from knockout.search.trial import Trial


def corpora(workspace: Workspace) -> Iterator[Finding]:
    """Corpora without a whole manifest or with a damaged file, and what an interrupted preparation left."""
    for path in sorted(workspace.corpora.iterdir()):
        if path.is_dir() and not path.name.startswith("."):
            try:
                check(path)
            except CorpusError as error:
                why = str(error).removeprefix(f"{path}/")
                move = partial(set_aside, path, workspace=workspace, why=why)
                yield Finding(
                    "damaged corpus",
                    f"corpora/{path.name}",
                    why,
                    "moves it to lost+found/; the next study that needs it prepares it",
                    move,
                )
    for path in abandoned(workspace.corpora):
        why = "its preparation was cut off; the next one of the same text goes on from here"
        move = partial(set_aside, path, workspace=workspace, why=why)
        yield Finding("half-written", f"corpora/{path.name}", why, "moves it to lost+found/", move)


def reports(workspace: Workspace, *, known: list[Submitted]) -> Iterator[Finding]:
    """Reports that no submission of the ledger has written, and that name no run of the workspace."""
    written = {workspace.report(one.study, arguments=one.arguments) for one in known if one.facts is not None}
    for page in sorted(workspace.folder.glob("reports/**/report.html")):
        if page.parent not in written and not _names_a_run(page, workspace=workspace):
            why = "no submission of the ledger wrote it"
            move = partial(set_aside, page, workspace=workspace, why=why)
            where = str(page.relative_to(workspace.folder))
            yield Finding("orphan report", where, why, "moves it to lost+found/", move)


def _names_a_run(page: Path, *, workspace: Workspace) -> bool:
    """Whether a report is of runs that are here: the ledger that knew of it was lost."""
    named = re.findall(r"<code>([0-9a-f]{20})</code>", page.read_text(errors="replace")) if is_file(page) else []
    return any(is_folder(workspace.run(name)) for name in named)


def servers(workspace: Workspace) -> Iterator[Finding]:
    """Records of servers that do not run, or that are another workspace's."""
    for server in (*SERVERS.values(), WORKER):
        path = server.state(workspace.folder)
        if not path.exists():
            continue
        where = f"services/{path.name}"
        try:
            if state.running(state.read(workspace.folder, server=server), path=path):
                continue
        except ServiceError as error:
            yield Finding("server record", where, str(error), "see there")
            continue
        if (before := state.left_behind(workspace.folder, server=server)) is not None:
            what = f"its {server.name} server still runs for {before}, where this workspace was"
            yield Finding("server record", where, what, state.ends(before))
            continue
        repair = partial(_drop_record, path, workspace=workspace, server=server)
        yield Finding(
            "server record", where, f"its {server.name} server does not run in this workspace", "removes it", repair
        )


def searches(ledger: Ledger, *, asked: list[Ask]) -> Iterator[Finding]:
    """Searches that belong to no run; or why their database cannot be looked at."""
    try:
        if (why := damage(ledger.workspace.folder)) is None:
            yield from orphan_searches(ledger, asked=asked)
            return
    except WorkspaceError as error:
        yield Finding("searches", NAME, str(error), "see there")
        return
    repair = partial(_set_searches_aside, ledger, why=why)
    yield Finding("damaged searches", NAME, f"it is damaged: {why}", ANEW, repair)


def orphan_searches(ledger: Ledger, *, asked: list[Ask]) -> Iterator[Finding]:
    """Searches none of whose trials is a run that a submission asked for.

    Raises:
        WorkspaceError: their database is damaged, or cannot be read.
    """
    if not database(ledger.workspace.folder).exists() and find_database(ledger.workspace.folder) is None:
        return
    from knockout.search.storage import address  # Optuna takes a second to import
    from knockout.search.stored import searches as stored

    tried = [{**meaning["architecture"], **meaning["recipe"]} for meaning in _trials(ledger, asked=asked)]
    for name, trials in stored(address(ledger.workspace.folder)):
        if trials and not any(_is_of(settings, trial=trial) for trial in trials for settings in tried):
            repair = partial(_remove_search, name, trials, workspace=ledger.workspace)
            remedy = "writes its trials to lost+found/ and removes it"
            yield Finding("orphan search", name, f"none of its {len(trials)} trials is a known run", remedy, repair)


def _trials(ledger: Ledger, *, asked: list[Ask]) -> Iterator[Mapping[str, Any]]:
    for run in ledger.runs({ask.identity for ask in asked if ask.role == "trial"}):
        yield run.meaning


def _is_of(settings: Mapping[str, Any], *, trial: Trial) -> bool:
    """Whether a run has a trial's values."""
    flat = flatten(dict(settings))
    return all(flat.get(path) == value for path, value in as_declared(trial.values, settings=settings).items())


def _remove_search(name: str, trials: list[Trial], *, workspace: Workspace) -> None:
    from knockout.search.storage import address
    from knockout.search.stored import remove

    lock_file = workspace.folder / "searches" / f"{name}.lock"
    lock_file.parent.mkdir(exist_ok=True)
    with lock_file.open("a") as lock:
        if not acquired(lock.fileno()):
            raise ServiceError(f"the search {name} is in work; try again when that command has ended")
        plain = [
            {"number": t.number, "values": t.values, "state": t.state, "loss": t.loss, "curve": t.curve} for t in trials
        ]
        note(f"search {name} -> search-{name}.json: no cell asks for it", workspace=workspace)
        write_json(workspace.folder / FOLDER / f"search-{name}.json", data=json.loads(json.dumps(plain)))
        remove(address(workspace.folder), name=name)


def _set_searches_aside(ledger: Ledger, *, why: str) -> None:
    """A damaged file goes with all that SQLite keeps beside it, so that nothing of it reaches the next one."""
    if any(one.state == "running" for one in every_submission(ledger)):
        raise ServiceError("a study is being run, and may be searching there: repair when it has ended")
    for part in parts(database(ledger.workspace.folder)):
        set_aside(part, workspace=ledger.workspace, why=f"the searches' database was damaged: {why}")


def _drop_record(path: Path, *, workspace: Workspace, server: Server) -> None:
    if not state.running(state.read(workspace.folder, server=server), path=path):
        path.unlink(missing_ok=True)
