"""The commands, and their errors as messages and exit codes. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import errno
import sys
from typing import Annotated

import typer

from knockout import __version__
from knockout.cli import (
    corpus,
    costing,
    declarations,
    generating,
    pools,
    reproducing,
    running,
    scheduling,
    services,
    stopping,
    sweeping,
    upkeep,
)
from knockout.cli.signals import INTERRUPTED, STOPPED, forget_terminal, terminal_is_gone
from knockout.errors import InputError, KnockoutError, Stopped

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""The disk is full, or not to be written: nothing that the program could do better."""

app = typer.Typer(
    name="knockout",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _say_version(wanted: bool) -> None:
    if wanted:
        print(f"knockout {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    """Take a part out of a language model, and find out what it was for."""


declarations.register(app)
running.register(app)
generating.register(app)
reproducing.register(app)
pools.register(app)
stopping.register(app)
scheduling.register(app)
sweeping.register(app)
services.register(app)
corpus.register(app)
upkeep.register(app)
costing.register(app)


def run() -> None:
    """The command, and its errors as messages and exit codes."""
    try:
        app()
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except Stopped as stopped:
        print(f"knockout: {stopped}; the same command goes on from here", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except KnockoutError as error:
        print(f"knockout: {error}", file=sys.stderr)
        sys.exit(1)
    except SystemExit as ending:
        if ending.code == INTERRUPTED:
            print(STOPPED, file=sys.stderr)
        raise
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        if error.errno == errno.EIO and terminal_is_gone():
            forget_terminal()
            sys.exit(INTERRUPTED)
        if error.errno not in NO_ROOM:
            raise
        print(f"{error.filename or 'a file'} cannot be written: {error.strerror}", file=sys.stderr)
        sys.exit(2)
