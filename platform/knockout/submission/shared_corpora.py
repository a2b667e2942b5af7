"""Prepared corpora that machines without a shared disk have in common.

The invariant: a corpus that comes from the store is checked as one that lies here is: by the digests of its manifest.
"""

from __future__ import annotations

from pathlib import Path

from knockout.corpus.lookup import find_by_digest, folders_by_digest
from knockout.corpus.manifest import MANIFEST
from knockout.corpus.prepare import Prepared
from knockout.ledger.workspace import Workspace
from knockout.services.objects import find_store


def share_corpus(prepared: Prepared, *, workspace: Workspace) -> None:
    """Put a corpus into the workspace's store, where it has one that lacks it. Raises WorkspaceError."""
    store, folder = find_store(workspace.folder), prepared.folder
    if store is None or store.has(f"corpora/{folder.name}/{MANIFEST}"):
        return
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != MANIFEST)
    store.put((path, f"corpora/{folder.name}/{path.name}") for path in [*files, folder / MANIFEST])
    store.put_text(f"digests/{prepared.manifest.digest}", text=folder.name)


def fetch_corpora(corpus: str, *, vocabulary: int, workspace: Workspace) -> None:
    """Take those of a corpus for a vocabulary that are not here. Raises WorkspaceError."""
    store = find_store(workspace.folder)
    for name in store.names("corpora") if store is not None else ():
        if name.startswith(f"{corpus}-{vocabulary}-"):
            _fetch(name, workspace=workspace)


def shared_by_digest(digest: str, *, workspace: Workspace) -> Prepared:
    """The corpus whose manifest has this digest, from here or from the store.

    Raises:
        CorpusError: it is in neither.
    """
    store = find_store(workspace.folder)
    if store is not None and digest not in folders_by_digest(workspace.corpora):
        name = store.text(f"digests/{digest}")
        if name is not None:
            _fetch(name, workspace=workspace)
    return find_by_digest(digest, folder=workspace.corpora)


def _fetch(name: str, *, workspace: Workspace) -> None:
    store, target = find_store(workspace.folder), workspace.corpora / name
    if store is not None and not _is_whole(target) and store.has(f"corpora/{name}/{MANIFEST}"):
        store.take_folder(f"corpora/{name}", to=target)


def _is_whole(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()
