"""The room that is kept for a full disk: who may take how much of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from knockout.errors import WorkspaceError
from knockout.ledger.reserve import FREEING, LOOKING, NUM_BYTES, PIECE, RESERVE, give_up, keep
from knockout.ledger.store import Ledger
from knockout.ledger.tables import NoRoom
from knockout.ledger.workspace import Workspace, open_workspace


def left(folder: Path) -> int:
    return (folder / RESERVE).stat().st_size


@pytest.mark.parametrize("least", [0, FREEING, LOOKING, NUM_BYTES])
def test_it_is_given_up_piece_by_piece_down_to_what_is_to_be_left(tmp_path: Path, least: int):
    keep(tmp_path)
    pieces = 0
    while give_up(tmp_path, left=least):
        pieces += 1
        assert left(tmp_path) == NUM_BYTES - pieces * PIECE
    assert left(tmp_path) == least
    keep(tmp_path)
    assert left(tmp_path) == NUM_BYTES


def test_there_is_nothing_to_give_up_where_nothing_is_kept(tmp_path: Path):
    assert not give_up(tmp_path, left=0)
    (tmp_path / RESERVE).write_bytes(b"of another kind")
    assert not give_up(tmp_path, left=0)


def test_looks_leave_half_of_it_for_endings_however_many_there_are(tmp_path: Path):
    open_workspace(tmp_path)
    ledger = Ledger(Workspace(tmp_path, reserve_left=LOOKING))

    def full() -> None:
        raise NoRoom("no room")

    for _ in range(3):
        with pytest.raises(WorkspaceError, match="no room"):
            ledger.spending(full)
        assert left(tmp_path) == LOOKING
    with pytest.raises(WorkspaceError):
        ledger.spending(full, left=0)
    assert left(tmp_path) == 0
    ledger.close()
    Ledger(Workspace(tmp_path)).close()
    assert left(tmp_path) == NUM_BYTES
