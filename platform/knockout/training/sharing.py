"""Runs that machines without a shared disk have in common: results, and checkpoints to go on from.

The invariant: a result is in the store before the ledger says that its run is done, and after the files that it names, which
lie there under their digests: also when a machine that was taken for dead puts its own there, what is read is of one piece.
A checkpoint is there after the metrics up to it. What is taken from there is trusted no more than what lies here.
"""

from __future__ import annotations

import json
import logging
import math
import shutil
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType

from knockout.errors import WorkspaceError
from knockout.ledger.workspace import Workspace, write_atomically
from knockout.services.objects import ObjectStore, find_store
from knockout.training.spec import CHECKPOINTS, LOG, MEANING, METRICS, RESULT, SEGMENTS, WEIGHTS

SHARE_SECONDS = 30.0
"""How often the newest checkpoint of a run in work is put into the store."""

FOLLOW_SECONDS = 10.0
"""How often the store is asked how far a run is that another machine trains."""

log = logging.getLogger(__name__)


def share_result(workspace: Workspace, identity: str) -> None:
    """Put a sealed result into the workspace's store, where it has one. Raises WorkspaceError."""
    store, folder = find_store(workspace.folder), workspace.run(identity)
    if store is None:
        return
    sealed = _digests((folder / RESULT).read_text())
    beside = [(name, name) for name in (MEANING, LOG)]
    named = [(name, _under(name, digest=digest)) for name, digest in sealed.items()]
    store.put((folder / name, _there(identity, there)) for name, there in [*beside, *named, (RESULT, RESULT)])


def is_shared(workspace: Workspace, identity: str) -> bool:
    """Whether the workspace has a store that holds a run's result. Raises WorkspaceError."""
    store = find_store(workspace.folder)
    return store is not None and store.has(_there(identity, RESULT))


def fetch_result(workspace: Workspace, identity: str) -> None:
    """Take a result from the store that is not here. Raises WorkspaceError."""
    store, folder = find_store(workspace.folder), workspace.run(identity)
    if store is None or (folder / RESULT).exists() or (sealed := store.text(_there(identity, RESULT))) is None:
        return
    named = {_under(name, digest=digest): name for name, digest in _digests(sealed).items()}
    if store.has(_there(identity, MEANING)):
        named[MEANING] = MEANING
    store.take({_there(identity, there): folder / name for there, name in named.items()})
    write_atomically(folder / RESULT, text=sealed)


def fetch_checkpoint(workspace: Workspace, identity: str) -> None:
    """Take the newest checkpoint from the store, with the metrics up to it, where it is further than any here.

    Raises:
        WorkspaceError: the store does not give it.
    """
    store, folder = find_store(workspace.folder), workspace.run(identity)
    if store is None:
        return
    newest = _newest(store.names(_there(identity, CHECKPOINTS)))
    if newest <= _newest(_files(folder / CHECKPOINTS)):
        return
    segments = (store.text(_there(identity, _listing(newest))) or "").split()
    shutil.rmtree(folder / SEGMENTS, ignore_errors=True)
    names = [*(f"{SEGMENTS}/{name}" for name in segments), f"{CHECKPOINTS}/{newest:010d}.pt"]
    store.take({_there(identity, name): folder / name for name in names})


class SharedCheckpoints:
    """While entered, the newest checkpoint of a run in work is put into the workspace's store, if it has one."""

    def __init__(self, workspace: Workspace, identity: str) -> None:
        self.store = find_store(workspace.folder)
        self.folder = workspace.run(identity)
        self.identity = identity
        self.shared = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._share, name=f"checkpoints of {identity}", daemon=True)

    def __enter__(self) -> SharedCheckpoints:
        if self.store is not None:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        if self.store is not None:
            self._thread.join()
            self._put(self.store)

    def _share(self) -> None:
        while self.store is not None and not self._over.wait(SHARE_SECONDS):
            self._put(self.store)

    def _put(self, store: ObjectStore) -> None:
        """The newest checkpoint, if it is not there yet, after the metrics up to it."""
        newest = _newest(_files(self.folder / CHECKPOINTS))
        if newest <= self.shared:
            return
        segments = [name for name in _files(self.folder / SEGMENTS) if int(Path(name).stem) <= newest]
        try:
            store.put([(self.folder / SEGMENTS / name, self._there(f"{SEGMENTS}/{name}")) for name in segments])
            store.put_text(self._there(_listing(newest)), text="\n".join(segments))
            checkpoint = f"{CHECKPOINTS}/{newest:010d}.pt"
            store.put([(self.folder / checkpoint, self._there(checkpoint))])
        except WorkspaceError as unreachable:
            log.warning("%s; the next checkpoint is tried again", unreachable)
        else:
            self.shared = newest

    def _there(self, name: str) -> str:
        return _there(self.identity, name)


class FollowedMetrics:
    """While entered, the metrics of a run that another machine trains, as far as the workspace's store has them."""

    def __init__(self, workspace: Workspace, identity: str) -> None:
        self.store = find_store(workspace.folder)
        self.identity = identity
        self.room = tempfile.TemporaryDirectory(prefix="knockout-following-")
        self.looked = -math.inf
        self.newest = 0

    def __enter__(self) -> FollowedMetrics:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.room.cleanup()

    def look(self) -> Path:
        """A folder as a run's own, with the segments up to the newest shared checkpoint; asked of the store now and then."""
        folder = Path(self.room.name)
        if self.store is not None and time.monotonic() - self.looked > FOLLOW_SECONDS:
            self.looked = time.monotonic()
            try:
                self._take(self.store, folder=folder)
            except WorkspaceError as unreachable:
                log.debug("%s; it is looked at again", unreachable)
        return folder

    def _take(self, store: ObjectStore, *, folder: Path) -> None:
        listings = [name for name in store.names(_there(self.identity, SEGMENTS)) if name.endswith(".names")]
        newest = max((int(Path(name).stem) for name in listings), default=0)
        if newest > self.newest:
            named = (store.text(_there(self.identity, _listing(newest))) or "").split()
            wanted = {_there(self.identity, f"{SEGMENTS}/{name}"): folder / SEGMENTS / name for name in named}
            store.take({there: here for there, here in wanted.items() if not here.exists()})
            self.newest = newest


def _there(identity: str, name: str) -> str:
    return f"runs/{identity}/{name}"


def _under(name: str, *, digest: str) -> str:
    """The name in the store of a file that a result names."""
    return f"{digest[:16]}-{name}"


def _digests(sealed: str) -> dict[str, str]:
    """The files that a sealed result names, and their SHA-256; only those that a run has."""
    files = json.loads(sealed)["files"]
    return {name: files[name] for name in (METRICS, WEIGHTS) if name in files}


def _listing(step: int) -> str:
    """The names of the metric segments up to a checkpoint: others of attempts that went on elsewhere may lie beside them."""
    return f"{SEGMENTS}/{step:010d}.names"


def _files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("[0-9]*"))


def _newest(names: list[str]) -> int:
    """The step of the newest checkpoint among some files; 0 where there is none."""
    return max((int(name.removesuffix(".pt")) for name in names if name.endswith(".pt")), default=0)
