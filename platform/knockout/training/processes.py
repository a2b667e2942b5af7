"""What every process of a run does at its beginning and its end, whether it trains alone or with others."""

from __future__ import annotations

import contextlib
import errno
import os
import traceback
from collections.abc import Callable

from knockout.errors import KnockoutError, WorkspaceError
from knockout.ledger.workspace import FULL
from knockout.training.spec import EXIT_NO_MEMORY, EXIT_UNWRITABLE

UNWRITABLE = (*FULL, errno.EROFS, errno.EACCES, errno.EPERM)
"""What a system says of a disk that is full, and of a file that may not be written to."""

ALLOCATOR = "DefaultCPUAllocator: "
"""How torch's allocator on the CPU begins what it says, after the line of its own source."""


def exit_code_of(work: Callable[[], int]) -> int:
    """What work returns; or, when it raises, the code for its error, which is told in the log."""
    try:
        return work()
    except BaseException as error:
        _tell(error)
        return EXIT_UNWRITABLE if _unwritable(error) else EXIT_NO_MEMORY if _out_of_memory(error) else 1


def _tell(error: BaseException) -> None:
    """The error in the log, its last line a summary; nothing where the log cannot take it."""
    name = "out of memory" if _out_of_memory(error) else type(error).__name__
    said = str(error).strip().rpartition(ALLOCATOR)[2]
    summary = f"{name}: {said.splitlines()[0] if said else 'no message'}"
    with contextlib.suppress(OSError):
        os.write(2, f"{'' if isinstance(error, KnockoutError) else traceback.format_exc()}{summary}\n".encode())


def _out_of_memory(error: BaseException) -> bool:
    """Whether Python, torch on a GPU, or torch's CPU allocator, which has no error of its own, found no memory."""
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))


def _unwritable(error: BaseException) -> bool:
    """Whether the system refused to write."""
    return _refused(error) in UNWRITABLE


def is_full(error: BaseException) -> bool:
    """Whether the system had no room to write."""
    return _refused(error) in FULL


def _refused(error: BaseException) -> int | None:
    """What the system said, itself or as what a workspace's error comes from."""
    cause = error.__cause__ if isinstance(error, WorkspaceError) else error
    return cause.errno if isinstance(cause, OSError) else None
