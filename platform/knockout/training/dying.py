"""A process that ends with the one that started it, however that one dies.

The invariant: it imports next to nothing, so that a process can do this before all else.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with(owner: int) -> None:
    """Ask the kernel to kill this process when its parent dies; where the kernel cannot, the parent's end does it.

    The kernel counts the end of the thread that started this process as the parent's death (prctl(2)).
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != owner:
        os._exit(1)
