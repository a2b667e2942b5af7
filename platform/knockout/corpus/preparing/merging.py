"""Many sorted runs to few, so that a range of hashes is read from few files.

The invariant: a merged run holds what its runs held, each content once with all its copies. Merging takes
memory for one step of hashes, whatever the runs' number and size.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from knockout.corpus.building import WORK, writing
from knockout.corpus.preparing.ranges import STEP_BYTES
from knockout.corpus.preparing.runs import (
    ENTRY,
    ENTRY_BYTES,
    Pile,
    Run,
    contents_of,
    evenly,
    gather_index,
    merged,
    num_entries,
)

MAX_RUNS = 512
"""So many runs are read side by side without being merged; of more, groups are made."""
MIN_GROUP = 16


@dataclass(frozen=True)
class Merging:
    """Merge some runs into one."""

    room: str
    runs: tuple[str, ...]
    """Names of files in the room's WORK."""
    name: str


def merge(task: Merging) -> str:
    """Merge runs, or find them merged; the name of the run.

    Raises:
        CorpusError: a run was damaged.
    """
    work = Path(task.room, WORK)
    path = work / task.name
    if not path.exists():
        pile = Pile(tuple(Run(str(work / run)) for run in task.runs), 0.0)
        size = sum((work / run).stat().st_size + ENTRY_BYTES * num_entries(work / run) for run in task.runs)
        index_path = path.with_suffix(".index")
        with writing(path) as file:
            with index_path.open("wb") as index_file:
                offset = 0
                for low, high in evenly(max(1, -(-size // STEP_BYTES))):
                    index, times = merged(gather_index(pile, low=low, high=high))
                    file.writelines(contents_of(pile, index))
                    entries = index.copy()
                    entries["copies"] = times
                    entries["offset"] = offset + np.cumsum(entries["length"]) - entries["length"]
                    offset += int(entries["length"].sum())
                    index_file.write(entries.tobytes())
                num = index_file.tell() // ENTRY.itemsize
            with index_path.open("rb") as index_file:
                shutil.copyfileobj(index_file, file)
            file.write(num.to_bytes(8, "little"))
        index_path.unlink()
    return task.name


def groups(runs: Sequence[Run], *, room: Path) -> list[tuple[Merging, int]]:
    """Tasks that make at most about MAX_RUNS runs of more, each with how much of its documents is kept; else none."""
    if len(runs) <= MAX_RUNS:
        return []
    size = max(MIN_GROUP, -(-len(runs) // MAX_RUNS))
    found: list[tuple[Merging, int]] = []
    for kept in dict.fromkeys(run.kept for run in runs):
        same = [Path(run.path).name for run in runs if run.kept == kept]
        found += [
            (Merging(str(room), tuple(same[start : start + size]), f"merged-{len(found) + number:05d}.run"), kept)
            for number, start in enumerate(range(0, len(same), size))
        ]
    return found
