"""A ledger that vanishes, or is no database, while a study goes on: the command says so, and no result is lost with it."""

from __future__ import annotations

from pathlib import Path

from agreeing import invariants
from commands import Home, until

LONG = ("--set", "tokens=25600", "--slots", "1")
"""One run of 400 steps after the other."""
HELPS = "put a copy of it in its place, or move it away; the next run of a study takes up the results that lie in runs/"


def results(home: Home) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (home.folder / "runs").glob("*/result.json")}


def test_a_study_whose_ledger_vanishes_ends_and_the_next_takes_up_what_it_had(home: Home):
    process = home.begin("resumed", *LONG)
    until(lambda: results(home) or process.poll() is not None)
    for path in home.folder.glob("ledger.db*"):
        path.unlink()
    code, said = home.finish(process)
    assert code == 2, said
    assert "Traceback" not in said
    assert f"the ledger {home.folder / 'ledger.db'} was removed while this command was using it" in said
    assert "the next run of a study takes up the results that lie in runs/" in said
    assert list(home.folder.glob("ledger.db*")) == []
    home.until_gone()
    sealed = results(home)
    assert sealed
    code, said = home.run("resumed", *LONG)
    assert code == 0, said
    assert results(home).items() >= sealed.items(), "what a run cost stands in its result, and is never the same twice"
    invariants(home)


def test_a_damaged_ledger_is_told_with_what_helps(home: Home):
    home.folder.mkdir()
    (home.folder / "ledger.db").write_text("garbage-garbage\n" * 500)
    code, said = home.run("resumed")
    assert code == 2
    assert said == f"the ledger {home.folder / 'ledger.db'} is damaged (file is not a database): {HELPS}\n"
