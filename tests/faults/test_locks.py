"""A database that another process holds for half a minute: every command waits, and nobody sees an error of a lock."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

from agreeing import invariants
from commands import Home, until

LOCKED_SECONDS = 30.0


def hold(database: Path, *, seconds: float, held: threading.Event) -> None:
    """Keep an exclusive transaction open on a database."""
    with closing(sqlite3.connect(database, timeout=60, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        held.set()
        time.sleep(seconds)
        connection.execute("ROLLBACK")


def test_the_databases_of_a_study_are_locked_for_half_a_minute_while_it_works_and_while_others_begin(home: Home):
    first = home.begin("tuned")
    until(lambda: (home.folder / "optuna.db").exists() and home.steps() > 0)
    held, holders = threading.Event(), []
    for name in ("ledger.db", "optuna.db"):
        held.clear()
        holder = threading.Thread(
            target=hold, args=(home.folder / name,), kwargs={"seconds": LOCKED_SECONDS, "held": held}, daemon=True
        )
        holder.start()
        holders.append(holder)
        assert held.wait(60)
    second, third = home.begin("resumed", "--set", "tokens=3200"), home.start("status")
    ended = [home.finish(process) for process in (first, second, third)]
    for holder in holders:
        holder.join()
    for code, said in ended:
        assert code == 0, said
        assert "locked" not in said
        assert "Traceback" not in said
    invariants(home)
