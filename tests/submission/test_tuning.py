"""A search that another process has: who is waited for is told, once."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path

import pytest

from knockout.errors import RunError
from knockout.ledger.process import this_process
from knockout.ledger.workspace import Workspace
from knockout.submission import tuning


def test_whoever_waits_for_a_search_is_told_who_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tuning, "TELL_AFTER_SECONDS", 0.0)
    workspace, stop, told = Workspace(tmp_path), threading.Event(), list[str]()

    def wait(holder: str) -> None:
        told.append(holder)
        threading.Timer(1.0, stop.set).start()  # it looks twice more

    with tuning._alone("abc", workspace=workspace, stop=stop, waits=wait):
        second = tuning._alone("abc", workspace=workspace, stop=stop, waits=wait)
        with pytest.raises(RunError, match="another submission tunes the same cell"):
            second.__enter__()
    assert told == [str(this_process())]
    stop.clear()
    with (tmp_path / "searches" / "abc.lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
