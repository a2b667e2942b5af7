"""The signals that end a command.

The invariant: a command that Ctrl-C, SIGTERM, or a closed terminal ends has exit code 130, says so in a line, and shows no
traceback, at whatever moment the signal comes. What is imported here takes under a millisecond: it is the first that a
command imports.
"""

from __future__ import annotations

import atexit
import os
import signal
import stat
import sys
import time
from types import FrameType

INTERRUPTED = 130
"""The exit code that Typer makes of Ctrl-C."""
STOPPED = "knockout: stopped; the same command goes on from here"
STOPPING = {
    signal.SIGINT: "knockout: stopping; press Ctrl-C again to leave at once",
    signal.SIGTERM: "knockout: stopping",
    signal.SIGHUP: "knockout: stopping",
}
"""The signals that end a command, and what it says when it begins to end."""
SAME_SECONDS = 0.5
"""What comes so soon after the first signal is the same wish: timeout(1), for one, sends its own twice."""
SHOW_CURSOR = "\x1b[?25h"


def heeded() -> list[signal.Signals]:
    """Those that end this command: not that of a closed terminal, where it was started to outlive it (nohup)."""
    return [number for number in STOPPING if signal.getsignal(number) is not signal.SIG_IGN]


def heed() -> None:
    """From here on they end the process at once, as they would by themselves, but with the exit code.

    An exception would be lost in libraries that are just being imported; only Ctrl-C raises one where none is. Work that
    has something to bring to an end enters `stopping`.
    """
    for number in heeded():
        signal.signal(number, _interrupt if number == signal.SIGINT else _end)


def leave(code: int) -> None:
    """The command has ended with a code: a further signal cuts its exit short, and cannot change the code."""
    signal.set_wakeup_fd(-1)
    for number in heeded():
        signal.signal(number, lambda *_: _end_at_once(code))
    atexit.register(_ignore)  # while Python takes itself down it would have no handlers


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Ctrl-C: an exception, unless a library is just being imported; pressed again, the end at once."""
    if imports(frame):
        _end(number, frame)
    first = time.monotonic()

    def again(number: int, frame: FrameType | None) -> None:
        if time.monotonic() - first > SAME_SECONDS:
            _end(number, frame)

    signal.signal(number, again)
    raise KeyboardInterrupt


def _end(number: int, *_: object) -> None:
    if number == signal.SIGHUP:
        forget_terminal()
    _end_at_once(INTERRUPTED, said=STOPPED)


def _end_at_once(code: int, *, said: str = "") -> None:
    try:
        sys.stdout.flush()
    finally:  # also where it was just being written to, or is closed
        leave_at_once(code, said=said)


def terminal_is_gone() -> bool:
    """Whether output went to a terminal that is closed: what is written to it fails."""
    return bool(_hung_up())


def forget_terminal() -> None:
    """What is written to a closed terminal from here on goes nowhere, and fails no longer."""
    for number in _hung_up():
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, number)
        os.close(nothing)


def _hung_up() -> list[int]:
    """Standard output and error, where they are devices that are terminals no longer."""
    nothing = os.stat(os.devnull).st_rdev
    kinds = {number: os.fstat(number) for number in (1, 2)}
    devices = [number for number, kind in kinds.items() if stat.S_ISCHR(kind.st_mode) and kind.st_rdev != nothing]
    return [number for number in devices if not os.isatty(number)]


def leave_at_once(code: int, *, said: str) -> None:
    """End the process with a line on standard error, whatever it is doing."""
    shown = SHOW_CURSOR if os.isatty(2) else ""  # progress hides it
    try:
        say(f"{shown}{said}")
    finally:
        os._exit(code)


def say(line: str) -> None:
    """Write a line on standard error, past all buffers."""
    os.write(2, f"{line}\n".encode() if line else b"")


def imports(frame: FrameType | None) -> bool:
    """Whether a library is just being imported."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _ignore() -> None:
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
