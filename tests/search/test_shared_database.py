"""Searches in the database that machines share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from knockout.search.storage import address, is_there
from knockout.search.stored import searches

OPEN = """if True:
    import sys
    from pathlib import Path
    import optuna
    from knockout.search.storage import address, open_storage
    storage = open_storage(address(Path(sys.argv[1])))
    optuna.create_study(storage=storage, study_name=sys.argv[2])
"""


def test_three_machines_that_come_first_make_one_store(database, tmp_path: Path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    commands = [[sys.executable, "-c", OPEN, str(tmp_path / name), name] for name in ("a", "b", "c")]
    started = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) for command in commands]
    assert [(process.wait(60), process.communicate()) and process.returncode for process in started] == [0, 0, 0]
    assert is_there(tmp_path)
    assert [name for name, _ in searches(address(tmp_path))] == ["a", "b", "c"]


def test_one_process_of_all_machines_has_the_turn(database):
    with database.turn("search x") as first, database.turn("search x") as second, database.turn("search y") as other:
        assert (first, second, other) == (True, False, True)
    with database.turn("search x") as later:
        assert later
