"""The prepared corpus that a run was trained on, found again by its identity."""

from __future__ import annotations

import json
from pathlib import Path

from knockout.corpus.manifest import MANIFEST, read_manifest
from knockout.corpus.prepare import Prepared
from knockout.errors import CorpusError


def find_by_digest(digest: str, *, folder: Path) -> Prepared:
    """The corpus under `folder` whose manifest has this digest; other folders may be damaged.

    Raises:
        CorpusError: there is none, or its manifest is damaged.
    """
    if (found := folders_by_digest(folder).get(digest)) is not None:
        return Prepared(read_manifest(found), found, reused=True)
    raise CorpusError(f"no corpus in {folder} has the digest {digest[:16]}…: run its study again, which prepares it")


def folders_by_digest(folder: Path) -> dict[str, Path]:
    """The corpora under `folder` that have a manifest, by what it says is their identity; of equal ones the first."""
    paths = sorted(folder.glob(f"*/{MANIFEST}"), reverse=True)
    return {digest: path.parent for path in paths if isinstance(digest := _digest(path), str)}


def _digest(path: Path) -> object:
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return data.get("digest") if isinstance(data, dict) else None
