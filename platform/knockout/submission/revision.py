"""Which revision of the code a submission is walked with.

The invariant: it is told beside the results and bears on none of them: no run's identity, and no verdict, has it in it.
"""

from __future__ import annotations

import logging
import os
import subprocess
from pathlib import Path

import knockout

SECONDS = 10.0
"""A checkout that takes git longer, on a slow disk, has no revision."""
PACKAGE = Path(knockout.__file__).resolve().parent

log = logging.getLogger(__name__)


def revision(package: Path = PACKAGE) -> str | None:
    """The short commit of the checkout that a package lies in, two folders down, with `+` when the package's files differ
    from it; None for an installed package, and where git is missing or does not answer.
    """
    checkout = package.parents[1]
    if not (checkout / ".git").exists():
        return None
    try:
        commit = _git(checkout, "rev-parse", "--short", "HEAD")
        changed = _git(checkout, "status", "--porcelain", "--", str(package))
    except (OSError, subprocess.SubprocessError) as error:
        log.debug("%s; the results name no revision", error)
        return None
    return f"{commit}{'+' if changed else ''}"


def _git(checkout: Path, *arguments: str) -> str:
    """What git says of a checkout. It takes no lock, and heeds no variable that names another repository."""
    return subprocess.run(
        ["git", "--no-optional-locks", "-C", str(checkout), *arguments],
        env={name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS,
    ).stdout.strip()
