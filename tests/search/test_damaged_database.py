"""A searches' database that is damaged, full or locked: one sentence that says what is so, and what mends it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from knockout.errors import WorkspaceError
from knockout.search.cell import CellSearch, finished_trials
from knockout.search.database_file import NAME, damage, database
from knockout.search.storage import address, open_storage
from knockout.search.stored import remove, searches

MENDS = "`knockout doctor --repair` moves it to lost\\+found/, and the next search builds it again from the ledger's runs"


@pytest.mark.parametrize("use", [
    open_storage,
    lambda url: list(searches(url)),
    lambda url: finished_trials(url, name="cell"),
    lambda url: remove(url, name="cell"),
    CellSearch.make_storage,
])  # fmt: skip
def test_a_file_that_is_no_database_is_told_in_a_sentence(tmp_path: Path, use: Callable[[str], object]):
    database(tmp_path).write_text("garbage-garbage\n")
    assert damage(tmp_path) == "file is not a database"
    with pytest.raises(WorkspaceError, match=rf"^{tmp_path}/optuna.db is damaged \(file is not a database\): {MENDS}$"):
        use(address(tmp_path))


def test_pages_that_are_overwritten_while_a_search_is_open_are_told(searching):
    search = searching.open(file=NAME)
    path = database(searching.folder)
    assert damage(searching.folder) is None
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))
    assert damage(searching.folder) is not None
    with pytest.raises(WorkspaceError, match=rf"optuna.db is damaged \(.+\): {MENDS}$"):
        search.ask()


def test_a_disk_without_room_is_told_as_that(searching, monkeypatch: pytest.MonkeyPatch):
    """SQLite itself says so where a file may have no more pages than it has."""
    searching.open(file=NAME)
    connect = sqlite3.connect

    def without_room(*given: Any, **settings: Any) -> sqlite3.Connection:
        connection = connect(*given, **settings)
        connection.execute("PRAGMA max_page_count = 1")
        return connection

    monkeypatch.setattr("sqlite3.dbapi2.connect", without_room)
    search = searching.open(file=NAME)
    trial = search.ask()
    assert trial is not None
    with pytest.raises(WorkspaceError, match=r"optuna.db cannot be read or written: database or disk is full$"):
        search.tell(trial, loss=1.0, curve=[(step, 1.0) for step in range(5_000)])


def test_a_database_that_another_process_holds_is_told_as_that(searching, monkeypatch: pytest.MonkeyPatch):
    search = searching.open(file=NAME)
    monkeypatch.setattr("knockout.search.storage.BUSY_SECONDS", 0.05)
    monkeypatch.setattr("knockout.services.sqlite.BUSY_TIMEOUT_SECONDS", 0.05)
    search.study._storage.remove_session()
    with closing(sqlite3.connect(database(searching.folder))) as other:
        other.execute("BEGIN EXCLUSIVE")
        for use in (lambda: open_storage(address(searching.folder)), lambda: damage(searching.folder)):
            with pytest.raises(WorkspaceError, match=r"optuna.db cannot be read( or written)?: database is locked$"):
                use()


KILLED_IN_THE_MIDDLE = """if True:
    import os, signal, sqlite3, sys
    connection = sqlite3.connect(sys.argv[1], isolation_level=None)
    connection.execute("PRAGMA cache_size = 1")
    connection.execute("BEGIN")
    connection.execute("CREATE TABLE t (x)")
    connection.executemany("INSERT INTO t VALUES (?)", [("x" * 3000,)] * 50)
    os.kill(os.getpid(), signal.SIGKILL)"""


def test_what_a_killed_writer_left_is_no_damage(searching):
    searching.open(file=NAME)
    path = database(searching.folder)
    subprocess.run([sys.executable, "-c", KILLED_IN_THE_MIDDLE, str(path)], check=False)
    assert path.with_name(f"{NAME}-journal").stat().st_size > 0
    assert damage(searching.folder) is None
    assert [name for name, _ in searches(address(searching.folder))] == ["cell"]
