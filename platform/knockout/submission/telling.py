"""Telling people what changed: a command, or a webhook.

The invariant: no shell reads anything, and a hook that hangs is ended.
"""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from knockout.declare.schedules import OnChange, PostJson, RunCommand, TellNobody
from knockout.errors import ServiceError

SECONDS = 60.0
"""A hook has so long."""


def tell(hook: OnChange, *, data: Mapping[str, Any]) -> None:
    """Hand over what changed, as JSON.

    Raises:
        ServiceError: the command is not there, failed or took too long, or the address did not accept.
    """
    body = json.dumps(data).encode()
    match hook:
        case TellNobody():
            return
        case RunCommand(run=words):
            _run(words, body=body)
        case PostJson(url=url):
            _post(str(url), body=body)


def _run(words: list[str], *, body: bytes) -> None:
    try:
        done = subprocess.run(words, input=body, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServiceError(f"on_change: {words[0]} could not be run to its end: {error}") from None
    if done.returncode != 0:
        raise ServiceError(f"on_change: {words[0]} ended with exit code {done.returncode}")


def _post(url: str, *, body: bytes) -> None:
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"}, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=SECONDS):
            return
    except (urllib.error.URLError, OSError) as error:
        raise ServiceError(f"on_change: {url} did not take what changed: {error}") from None
