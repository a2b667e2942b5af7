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
    "PREFECT_CLIENT_MAX_RETRIES": "1",
}
"""States tell Prefect what failed; on the terminal the ledger's sentence stands alone. Sending log lines, or asking a server
that is gone again and again, would only add errors and waiting."""


def load_flow(name: str, *, server: str) -> ModuleType:
    """A module of the flows/ folder, which is content and no package; its flows report to the server at this address."""
    os.environ |= {"PREFECT_API_URL": f"{server}/api", **QUIET_CLIENT}
    folder = str(project.root() / "flows")
    if folder not in sys.path:
        sys.path.insert(0, folder)  # as Prefect does for a flow that it loads itself
    return importlib.import_module(name)
