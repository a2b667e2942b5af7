"""What every process of a run does at its beginning and its end, whether it trains alone or with others."""

from __future__ import annotations

import contextlib
import errno
import os
import traceback
from collections.abc import Callable

from knockout.errors import KnockoutError, WorkspaceError
from knockout.training.spec import EXIT_UNWRITABLE


def exit_code_of(work: Callable[[], int]) -> int:
    """What work returns; or, when it raises, the code for its error, which is told in the log."""
    try:
        return work()
    except BaseException as error:
        _tell(error)
        return EXIT_UNWRITABLE if isinstance(error, WorkspaceError) or _unwritable(error) else 1


def _tell(error: BaseException) -> None:
    """The error in the log, its last line a summary; nothing where the log cannot take it."""
    summary = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"
    with contextlib.suppress(OSError):
        os.write(2, f"{'' if isinstance(error, KnockoutError) else traceback.format_exc()}{summary}\n".encode())


def _unwritable(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
