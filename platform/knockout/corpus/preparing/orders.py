"""Tasks written to a file, to be done wherever that file can be read.

The invariant: an order names one of the functions below and its tasks; doing it again finds what was done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from knockout.corpus.building import write_whole
from knockout.corpus.preparing.merging import Merging, merge
from knockout.corpus.preparing.parts import Counting, Encoding, Reading, count, encode, read
from knockout.corpus.preparing.similar import Comparing, Signing, compare, sign

KINDS: dict[str, tuple[Callable[[Any], object], TypeAdapter[Any]]] = {
    "read": (read, TypeAdapter(list[Reading])),
    "count": (count, TypeAdapter(list[Counting])),
    "encode": (encode, TypeAdapter(list[Encoding])),
    "merge": (merge, TypeAdapter(list[Merging])),
    "sign": (sign, TypeAdapter(list[Signing])),
    "compare": (compare, TypeAdapter(list[Comparing])),
}
"""What can be ordered: a function, and how its tasks are written."""


def write_order(path: Path, *, function: Callable[[Any], object], tasks: Sequence[Any]) -> None:
    """Write tasks for one of KINDS."""
    kind = function.__name__
    text = KINDS[kind][1].dump_json(list(tasks)).decode()
    write_whole(path, text=f"{kind}\n{text}")


def do_order(path: Path) -> int:
    """Do the tasks of an order; their number.

    Raises:
        CorpusError: what a task raises.
    """
    kind, _, text = path.read_text("utf-8").partition("\n")
    function, written = KINDS[kind]
    tasks = written.validate_json(text)
    for task in tasks:
        function(task)
    return len(tasks)
