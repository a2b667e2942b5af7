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
    for path in sorted(folder.glob(f"*/{MANIFEST}")):
        if _digest(path) == digest:
            return Prepared(read_manifest(path.parent), path.parent, reused=True)
    raise CorpusError(f"no corpus in {folder} has the digest {digest[:16]}…: run its study again, which prepares it")


def _digest(path: Path) -> object:
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return data.get("digest") if isinstance(data, dict) else None
