"""What may go from a workspace, and taking it away: `knockout gc`.

The invariant: nothing that a report cites, that anybody works on, or that a kept run needs. A run that is gone is as one
that was never asked for, in ledger, files and MLflow alike: whoever asks for it trains it again.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from knockout.corpus.building import abandoned
from knockout.corpus.lookup import folders_by_digest
from knockout.errors import InputError, WorkspaceError
from knockout.ledger.aside import FOLDER, LOG
from knockout.ledger.inventory import (
    Entry,
    Submitted,
    citations,
    entries,
    every_ask,
    every_submission,
    forget,
    give_back,
    take,
)
from knockout.ledger.kinds import found, is_folder, remove
from knockout.ledger.process import this_process
from knockout.ledger.reserve import is_full
from knockout.ledger.store import CLAIMABLE, FINISHED, PRUNED, Ledger
from knockout.tracking.removal import Remover
from knockout.training.result import drop_weights, weight_files
from knockout.upkeep.content import orphan_searches
from knockout.upkeep.files import temporary
from knockout.upkeep.links import refuse_links

Kind = Literal["weights", "run", "search", "corpus", "temporary", "lost+found"]
STATES = (*CLAIMABLE, *FINISHED)
"""Of runs that nobody holds."""
UNFINISHED = tuple(state for state in CLAIMABLE if state != PRUNED)
"""Of runs that the command that asked for them goes on with."""
CHECKPOINTS_GO = "unfinished: its checkpoints go"
YOUNG_SECONDS = 86_400.0
"""An unfinished run that is no older stays, unless its state or an age is asked for."""


@dataclass(frozen=True)
class Wanted:
    """What is asked to go; None where everything is."""

    older_than_seconds: float | None = None
    larger_than_bytes: float | None = None
    states: tuple[str, ...] | None = None
    """Of runs; other things go only when no state is asked for."""
    weights_only: bool = False
    """Whether runs keep what they measured, and lose only checkpoints and weights."""
    cited_too: bool = False
    """Whether runs that reports cite lose their weights as well."""

    def __post_init__(self) -> None:
        unknown = [state for state in self.states or () if state not in STATES]
        if unknown:
            raise InputError(f"no run is ever '{unknown[0]}': give some of {', '.join(STATES)}")
        if self.cited_too and not self.weights_only:
            raise InputError("of a run that a report cites only the weights may go: give --weights with --cited")

    @property
    def names_runs(self) -> bool:
        """Whether an age or states were given, and so no run is spared that someone may be about to ask for."""
        return self.older_than_seconds is not None or self.states is not None


@dataclass(frozen=True)
class Candidate:
    """One thing that may go."""

    kind: Kind
    name: str
    """Of a run its identity, else its path in the workspace."""
    state: str
    """Of a run; else empty."""
    age_seconds: float
    num_bytes: int
    paths: tuple[Path, ...]
    loses: str = ""
    """Of a run without a result, what of its work goes; else empty."""


def candidates(ledger: Ledger, *, wanted: Wanted, remover: Remover) -> list[Candidate]:
    """What may go, and how much each thing takes, in the order in which it goes. Changes nothing.

    Raises:
        WorkspaceError: a folder that things would be deleted from is a link.
    """
    refuse_links(ledger.workspace)
    known, submitted = entries(ledger), every_submission(ledger)
    busy = any(one.state == "running" for one in submitted)
    loose = _loose(ledger, known=known, submitted=submitted, wanted=wanted)
    runs = [_run(entry, ledger=ledger, remover=remover, wanted=wanted) for entry in loose.free]
    chosen = [one for one in runs if one.paths or not wanted.weights_only]
    chosen = [one for one in chosen if _fits(one, wanted=wanted)]
    if wanted.weights_only:
        return chosen
    going = {one.name for one in chosen}
    chosen += _searches(ledger, going=going)
    if wanted.states is not None:
        return chosen
    needed = {entry.corpus for entry in known.values() if entry.identity not in going}
    others = [*_temporary(ledger, known=known, busy=busy), *(() if busy else _corpora(ledger, needed=needed))]
    if wanted.older_than_seconds is not None:
        others += _lost(ledger)
    return [*chosen, *(one for one in others if _fits(one, wanted=wanted))]


@dataclass(frozen=True)
class Staying:
    """How many runs stay that nobody works on or waits for, and why."""

    young: int
    """Unfinished ones, younger than a day."""
    unasked: int
    """Results that no study has asked for since they were entered: who cites them was lost with an earlier ledger."""
    cited: int
    """Those that reports cite."""
    studies: tuple[str, ...]
    """Whose reports these are."""


def staying(ledger: Ledger, *, wanted: Wanted) -> Staying:
    """What would go if it were not for what it is kept for."""
    submitted = every_submission(ledger)
    loose = _loose(ledger, known=entries(ledger), submitted=submitted, wanted=wanted)

    def losing(of: Iterable[Entry]) -> list[str]:
        found = [one.identity for one in of]
        return [one for one in found if not wanted.weights_only or weight_files(ledger.workspace.run(one))]

    by_study, cited = citations(submitted), losing(loose.cited)
    studies = sorted(study for study, names in by_study.items() if not names.isdisjoint(cited))
    return Staying(len(losing(loose.young)), len(losing(loose.unasked)), len(cited), tuple(studies))


def sweep(ledger: Ledger, *, chosen: Iterable[Candidate], remover: Remover) -> Iterator[Candidate]:
    """Take things away; each that is gone. A run that somebody asked for meanwhile stays.

    Raises:
        WorkspaceError: something could not be taken away; on a full disk once the others are, which makes room.
    """
    refused: WorkspaceError | None = None
    for one in chosen:
        try:
            if _take_away(ledger, one, remover=remover):
                yield one
        except WorkspaceError as error:
            if not is_full(ledger.workspace.folder):
                raise
            refused = refused or error
    if refused is not None:
        raise refused


def _take_away(ledger: Ledger, one: Candidate, *, remover: Remover) -> bool:
    match one.kind:
        case "weights":
            return _drop_weights(ledger, one)
        case "run":
            return _remove_run(ledger, one, remover=remover)
        case "search":
            return _remove_search(ledger, one)
        case _:
            return _remove(one.paths)


@dataclass(frozen=True)
class _Loose:
    """Runs that nobody holds, and that no running submission asks for, by what keeps them."""

    free: list[Entry]
    young: list[Entry]
    unasked: list[Entry]
    cited: list[Entry]


def _loose(ledger: Ledger, *, known: Mapping[str, Entry], submitted: list[Submitted], wanted: Wanted) -> _Loose:
    asks, running = every_ask(ledger), {one.submission for one in submitted if one.state == "running"}
    in_use = {ask.identity for ask in asks if ask.submission in running}
    asked = {ask.identity for ask in asks}
    cited = frozenset[str]().union(*citations(submitted).values()) if not wanted.cited_too else frozenset[str]()
    found = _Loose([], [], [], [])
    for entry in known.values():
        if entry.held or entry.identity in in_use:
            continue
        if entry.identity in cited:
            found.cited.append(entry)
        elif not wanted.names_runs and entry.state in UNFINISHED and time.time() - entry.since <= YOUNG_SECONDS:
            found.young.append(entry)
        elif not wanted.names_runs and entry.finished and entry.identity not in asked:
            found.unasked.append(entry)
        else:
            found.free.append(entry)
    return found


def _fits(one: Candidate, *, wanted: Wanted) -> bool:
    return (
        (wanted.older_than_seconds is None or one.age_seconds > wanted.older_than_seconds)
        and (wanted.larger_than_bytes is None or one.num_bytes > wanted.larger_than_bytes)
        and (wanted.states is None or one.state in wanted.states)
    )


def _run(entry: Entry, *, ledger: Ledger, remover: Remover, wanted: Wanted) -> Candidate:
    folder, age = ledger.workspace.run(entry.identity), time.time() - entry.since
    weights = tuple(weight_files(folder))
    loses = CHECKPOINTS_GO if weights and not entry.finished else ""
    if wanted.weights_only:
        return Candidate("weights", entry.identity, entry.state, age, _bytes(weights), weights, loses)
    paths = (folder, *remover.files(entry.identity))
    return Candidate("run", entry.identity, entry.state, age, _bytes(paths), paths, loses)


def _searches(ledger: Ledger, *, going: Collection[str]) -> Iterator[Candidate]:
    """Searches that have no run any more once some are gone; their trials are kept as text in lost+found."""
    for search in orphan_searches(ledger, asked=[ask for ask in every_ask(ledger) if ask.identity not in going]):
        yield Candidate("search", search.where, "", 0.0, 0, ())


def _corpora(ledger: Ledger, *, needed: Collection[str]) -> Iterator[Candidate]:
    """Prepared corpora that no run needs."""
    for digest, path in folders_by_digest(ledger.workspace.corpora).items():
        if digest not in needed:
            yield _thing("corpus", path, ledger=ledger)


def _temporary(ledger: Ledger, *, known: Mapping[str, Entry], busy: bool) -> Iterator[Candidate]:
    for path in (*temporary(ledger.workspace, known=known, busy=busy), *abandoned(ledger.workspace.corpora)):
        yield _thing("temporary", path, ledger=ledger)


def _lost(ledger: Ledger) -> Iterator[Candidate]:
    for path in sorted((ledger.workspace.folder / FOLDER).glob("*")):
        if path.name != LOG:
            yield _thing("lost+found", path, ledger=ledger)


def _thing(kind: Kind, path: Path, *, ledger: Ledger) -> Candidate:
    age = time.time() - path.lstat().st_mtime
    return Candidate(kind, str(path.relative_to(ledger.workspace.folder)), "", age, _bytes([path]), (path,))


def _drop_weights(ledger: Ledger, one: Candidate) -> bool:
    """Of a result as it lies there, since nobody writes to it; of another run under a lease, so that nobody begins it."""
    folder, entry, owner = ledger.workspace.run(one.name), entries(ledger).get(one.name), this_process()
    if entry is None:
        return False
    if entry.finished:
        drop_weights(folder)
        return True
    if not take(ledger, one.name, owner=owner):
        return False
    try:
        drop_weights(folder)
    finally:
        give_back(ledger, entry, owner=owner)
    return True


def _remove_search(ledger: Ledger, one: Candidate) -> bool:
    """Where a run of it is back or was kept, it stays."""
    for search in orphan_searches(ledger, asked=every_ask(ledger)):
        if search.where == one.name and search.repair is not None:
            search.repair()
            return True
    return False


def _remove_run(ledger: Ledger, one: Candidate, *, remover: Remover) -> bool:
    """Under a lease, so that nobody begins it; the ledger last, so that what is cut off here can be done again. The weights
    go first: on a full disk MLflow needs room to let a run go.
    """
    entry, owner = entries(ledger).get(one.name), this_process()
    if entry is None or not take(ledger, one.name, owner=owner):
        return False
    try:
        drop_weights(ledger.workspace.run(one.name))
        remover.remove(one.name)
        _remove(one.paths)
        forget(ledger, one.name, owner=owner)
    except BaseException:
        give_back(ledger, entry, owner=owner)
        raise
    return True


def _remove(paths: Iterable[Path]) -> bool:
    for path in paths:
        remove(path)
    return True


def _bytes(paths: Iterable[Path]) -> int:
    """What files and folders take on the disk; of a link only the link."""
    inside = (file for path in paths for file in (path, *(path.rglob("*") if is_folder(path) else ())))
    return sum(file.lstat().st_blocks * 512 for file in inside if found(file) is not None)
