"""A disk that is full at any point of a study: an honest end in a sentence; with room again the same command finishes."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from agreeing import invariants, query
from commands import ALONE, ENDLESS, Home, until

from knockout.ledger.reserve import NUM_BYTES, RESERVE

LIMITED = """if True:
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, resource.RLIM_INFINITY))
    from knockout.cli import main
    main()"""
SAID = ("cannot be written", "disk I/O error", "database or disk is full")


def honest(home: Home, *, code: int, said: str) -> None:
    """It says what could not be written, nothing of it lives, and nothing claims to be done."""
    assert code in (1, 2), said
    assert "Traceback" not in said
    assert any(words in said for words in SAID), said
    assert home.alive() == {}


@pytest.mark.parametrize("limit", [2_000, 60_000])
def test_files_that_may_not_grow_beyond_a_size(home: Home, limit: int):
    """In the ledger, the corpus, a checkpoint, or the weights: whichever comes to the limit first."""
    code, said = home.run("resumed", "--set", "tokens=3200", code=LIMITED.format(limit=limit))
    honest(home, code=code, said=said)
    code, said = home.run("resumed", "--set", "tokens=3200")
    assert code == 0, said
    invariants(home)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=50m", "none", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting needs rights that this user has not")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def resize(disk: Path, *, room: int) -> None:
    """Give a disk so many bytes more than are in use."""
    shown = subprocess.run(["df", "--output=used", "-B1", str(disk)], capture_output=True, text=True, check=True).stdout
    used = int(shown.split()[1])
    subprocess.run(["mount", "-o", f"remount,size={used + room}", str(disk)], check=True)


def test_a_disk_that_fills_at_any_point_of_a_study(home: Home, disk: Path):
    """Each command has a little more room than the one before had left, and gets a little further."""
    home.folder = disk / "home"
    ends = []
    for room in (30_000, 160_000, 260_000, 380_000):
        resize(disk, room=room)
        code, said = home.run("resumed", "--set", "tokens=3200")
        ends.append(code)
        if code == 0:
            break
        honest(home, code=code, said=said)
    assert ends[0] != 0
    resize(disk, room=50_000_000)
    code, said = home.run("resumed", "--set", "tokens=3200")
    assert code == 0, said
    invariants(home)


def fill(path: Path) -> None:
    """Take the last byte of a disk."""
    with contextlib.suppress(OSError), path.open("ab", buffering=0) as file:
        for num_bytes in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(num_bytes))


@pytest.mark.parametrize("room", [250_000, 700_000])
def test_a_store_of_mlflow_that_finds_no_room_leaves_the_ledger_its_reason(home: Home, disk: Path, room: int):
    """Its database alone takes some 2 MB while it is made; the ledger can still say how the submission ended."""
    home.folder = disk / "home"
    code, said = home.run("resumed", "--set", "tokens=3200")
    assert code == 0, said
    resize(disk, room=room)
    code, said = home.knockout("run", "sibling", "--no-prefect", "--set", "tokens=3200")
    assert "Traceback" not in said
    assert any(words in said for words in SAID), said
    assert home.alive() == {}
    assert list((home.folder / "mlflow").glob(".mlflow.db*")) == list((home.folder / "mlflow").glob("mlflow.db*")) == []
    ((state, reason),) = query(home.folder / "ledger.db", "SELECT state, reason FROM submissions WHERE study = 'sibling'")
    assert (state == "done") == (code == 0)
    assert state == "done" or any(words in reason for words in SAID), (state, reason)
    resize(disk, room=50_000_000)
    code, said = home.knockout("run", "sibling", "--no-prefect", "--set", "tokens=3200")
    assert code == 0, said
    invariants(home)


def test_a_disk_without_a_byte_left_still_takes_why_a_submission_ended(home: Home, disk: Path):
    """What the ledger needs for that was kept free; with room again, it is kept again."""
    home.folder = disk / "home"
    process = home.begin("resumed", *ENDLESS)
    until(lambda: home.steps() or process.poll() is not None)
    reserve, filler = home.folder / RESERVE, disk / "filler"
    assert reserve.stat().st_size == NUM_BYTES
    fill(filler)
    code, said = home.finish(process)
    honest(home, code=code, said=said)
    fill(filler)
    ledger = home.folder / "ledger.db"
    ((state, reason),) = query(ledger, "SELECT state, reason FROM submissions")
    assert (state, "cannot be written" in reason) == ("failed", True), reason
    ended = query(ledger, "SELECT state, reason FROM runs WHERE attempts")
    assert ended
    for state, reason in ended:
        assert (state, "cannot be written" in reason) == ("failed", True), reason
    assert reserve.stat().st_size < NUM_BYTES
    filler.unlink()
    code, said = home.knockout("status")
    assert code == 0, said
    assert reserve.stat().st_size == NUM_BYTES


def test_on_a_full_disk_one_can_look_and_make_room(home: Home, disk: Path):
    """A study that is done, and then not a byte left: what there is can be seen, and weights that nobody cites can go."""
    home.folder = disk / "home"
    for study in ("resumed", "sibling"):
        code, said = home.run(study, "--set", "tokens=3200")
        assert code == 0, said
    with closing(sqlite3.connect(home.folder / "ledger.db")) as ledger, ledger:
        ledger.execute("UPDATE submissions SET facts = NULL WHERE study = 'sibling'")
    fill(disk / "filler")
    assert home.knockout("run", "resumed", *ALONE)[0] == 2
    code, said = home.knockout("status")
    assert (code, "done" in said) == (0, True), said
    code, said = home.knockout("report", "resumed", "--json", "--set", "tokens=3200")
    assert code == 0, said
    code, said = home.knockout("doctor")
    assert (code, "nothing is wrong" in said) == (0, True), said
    code, said = home.knockout("gc", "--yes")
    assert (code, "deleted" in said) == (0, True), said
