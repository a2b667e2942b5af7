"""Flows of the flows/ folder, loaded for a Prefect server at an address.

The invariant: Prefect reads its settings when it is imported, so no flow is loaded before the address is known.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType

from knockout import project

QUIET_CLIENT = {
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_TO_API_ENABLED": "false",
}
"""States tell Prefect what failed; on the terminal the ledger's sentence stands alone. Sending log lines would
only add errors and waiting."""
BRIEF = 1
"""Tries of a request where the work can go on without Prefect."""
PATIENT = 5
"""Tries of a request where it cannot: a busy server answers that it is unavailable."""


def load_flow(name: str, *, server: str, retries: int = BRIEF) -> ModuleType:
    """A module of the flows/ folder, which is content and no package; its flows report to the server at this address.

    The first module that is loaded decides on the address and the retries of a process.
    """
    os.environ |= {"PREFECT_API_URL": f"{server}/api", "PREFECT_CLIENT_MAX_RETRIES": str(retries), **QUIET_CLIENT}
    folder = str(project.root() / "flows")
    if folder not in sys.path:
        sys.path.insert(0, folder)  # as Prefect does for a flow that it loads itself
    return importlib.import_module(name)
