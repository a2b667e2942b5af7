"""The environment of every process that knockout starts: quiet, self-contained, and without secrets.

The invariant: no engine started with it makes an outbound call of its own, inherits another program's MLflow
run, keeps state outside the workspace, or sees a variable that looks like a secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path

TELEMETRY_OFF: Mapping[str, str] = {
    "DO_NOT_TRACK": "1",  # Prefect's client (Amplitude)
    "MLFLOW_DISABLE_TELEMETRY": "true",  # client, server and, through the server, the UI
    "MLFLOW_MODEL_CATALOG_URI": "",  # else the gateway page fetches prices from GitHub
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",  # the server's heartbeat
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
}
"""Every switch of MLflow 3.5 – 3.17 and Prefect 3.4 – 3.9 that stops a call to the outside."""

QUIET: Mapping[str, str] = {
    "MLFLOW_DISABLE_AGENT_HINT": "true",
    "MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING": "false",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # else eight more processes that outlive the server
    "PREFECT_CLI_COLORS": "false",
    "PREFECT_CLI_PROMPT": "false",
    "PREFECT_LOGGING_COLORS": "false",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",  # a hidden server would outlive a killed client
    "PREFECT_SERVER_LOGGING_LEVEL": "WARNING",
    "PREFECT_TELEMETRY_ENABLE_RESOURCE_METRICS": "false",
}

SECRET = re.compile(r"TOKEN(?!IZER)|SECRET|PASSWORD|KEY|CREDENTIAL|KNOCKOUT_DATABASE", re.IGNORECASE)
REDIRECTING = re.compile(r"_?MLFLOW_|PREFECT_PROFILE")
LOOPBACK = ("127.0.0.1", "localhost")


def settings(workspace: Path) -> dict[str, str]:
    """What knockout itself sets, for a workspace."""
    place = workspace.resolve()
    return {**TELEMETRY_OFF, **QUIET, **_homeless(place), "PREFECT_HOME": str(place / "prefect")}


def _homeless(workspace: Path) -> dict[str, str]:
    """Where matplotlib, which Lightning imports, keeps its list of fonts when the user's folder cannot be written.

    Where it can, that list is shared: to make it takes a second.
    """
    if "MPLCONFIGDIR" in os.environ or os.access(os.path.expanduser("~"), os.W_OK):
        return {}
    return {"MPLCONFIGDIR": str(workspace / "matplotlib")}


def quiet_environment(workspace: Path, *, keep: Collection[str] = ()) -> dict[str, str]:
    """The environment for a child process: this process's, cleaned, plus `settings(workspace)`.

    Dropped are every inherited MLFLOW_* variable (a run id or a tracking address of another program would win
    over explicit arguments), the name of a Prefect profile (the workspace has none of that name), and every
    variable whose name looks like a secret. `keep` names variables that stay anyway, such as the credentials
    of an object store that holds the workspace.
    """
    inherited = {name: value for name, value in os.environ.items() if name in keep or not is_dropped(name)}
    return {**inherited, **direct_loopback(inherited), **settings(workspace)}


def apply_quiet_environment(workspace: Path) -> None:
    """Set `settings(workspace)` in this process, and forget inherited MLFLOW_* variables and profiles.

    The engines read their settings when they are imported, so this comes before the first import of one.
    """
    for name in [name for name in os.environ if REDIRECTING.match(name)]:
        del os.environ[name]
    os.environ.update({**direct_loopback(os.environ), **settings(workspace)})


def is_dropped(name: str) -> bool:
    """Whether a child does not inherit this variable."""
    return bool(REDIRECTING.match(name) or SECRET.search(name))


def direct_loopback(environment: Mapping[str, str]) -> dict[str, str]:
    """Settings that keep a proxy out of the way to this machine's own servers."""
    known = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    hosts = [host.strip() for host in known.split(",") if host.strip()]
    joined = ",".join(dict.fromkeys([*hosts, *LOOPBACK]))
    return {"no_proxy": joined, "NO_PROXY": joined}
