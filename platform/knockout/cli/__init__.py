"""The command line: thin commands over public functions.

The invariant: signals are heeded before the commands are imported, so that there is no moment without the documented ending.
"""

from __future__ import annotations

import sys

from knockout.cli.signals import INTERRUPTED, STOPPED, heed, leave


def main() -> None:
    """Entry point: exit code 0 all as planned, 1 something failed, 2 the user's input is wrong, 130 a signal ended it."""
    try:
        heed()
        from knockout.cli.app import run  # takes a moment, in which a signal may come

        run()
    except KeyboardInterrupt:  # outside of Typer, or once more while the first was heeded
        leave(INTERRUPTED)
        print(STOPPED, file=sys.stderr)
        sys.exit(INTERRUPTED)
    except SystemExit as ending:
        if isinstance(ending.code, int):
            leave(ending.code)
        raise
