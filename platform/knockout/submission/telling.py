"""Telling people what changed: a command, or a webhook.

The invariant: no shell reads anything, and a hook that hangs is ended, with all that it started, so nobody waits for it
longer than its time.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Mapping
from concurrent.futures import Future
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError

from knockout.declare.schedules import OnChange, PostJson, RunCommand, TellNobody
from knockout.errors import ServiceError

SECONDS = 60.0
"""A hook has so long."""


class _Stays(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: what is posted would not go with it."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> None:
        """No request to another address: the answer is then an error."""


def tell(hook: OnChange, *, data: Mapping[str, Any], seconds: float = SECONDS) -> None:
    """Hand over what changed, as JSON.

    Raises:
        ServiceError: the command is not there, failed or took too long, or the address did not accept.
    """
    body = json.dumps(data).encode()
    match hook:
        case TellNobody():
            return
        case RunCommand(run=words):
            _run(words, body=body, seconds=seconds)
        case PostJson(url=url):
            _post(str(url), body=body, seconds=seconds)


def _run(words: list[str], *, body: bytes, seconds: float) -> None:
    try:
        process = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)
    except (OSError, ValueError) as error:
        raise ServiceError(f"on_change: {words[0]} could not be run: {error}") from None
    try:
        process.communicate(body, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise ServiceError(f"on_change: {words[0]} had not ended after {seconds:g} s, and was killed") from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode != 0:
        raise ServiceError(f"on_change: {words[0]} ended with {_ending(process.returncode)}")


def _ending(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"


def _post(url: str, *, body: bytes, seconds: float) -> None:
    """In a thread, since an address that answers a byte at a time keeps to no timeout of its socket."""
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"}, method="POST")
    answer: Future[None] = Future()
    threading.Thread(target=_send, args=(request, answer, seconds), name="webhook", daemon=True).start()
    try:
        answer.result(seconds)
    except TimeoutError:
        raise ServiceError(f"on_change: {url} had not answered after {seconds:g} s") from None
    except (OSError, HTTPException, ValueError) as error:
        said = str(error) or type(error).__name__
        raise ServiceError(f"on_change: {url} did not take what changed: {said}") from None


def _send(request: urllib.request.Request, answer: Future[None], seconds: float) -> None:
    try:
        with urllib.request.build_opener(_Stays).open(request, timeout=2.0 * seconds):  # whoever waits has given up by then
            answer.set_result(None)
    except Exception as error:  # handed to whoever waits
        if isinstance(error, HTTPError):
            error.close()
        answer.set_exception(error)
