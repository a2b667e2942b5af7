"""`knockout nightly`: studies with fresh seeds, one after the other, and what changed against their history."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from knockout.cli.options import STUDIES, Home


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Run studies with fresh seeds, and tell what changed.")(nightly)


def nightly(
    studies: Annotated[list[str] | None, typer.Option("--studies", help=STUDIES)] = None,
    size: Annotated[str | None, typer.Option("--size", help="Run at this size instead of each study's own.")] = None,
    pool: Annotated[str | None, typer.Option("--pool", help="Have a work pool train [default: train here].")] = None,
    schedule: Annotated[str | None, typer.Option("--schedule", help="Do what this schedule says.")] = None,
    from_seed: Annotated[int | None, typer.Option(min=0, help="First seed [default: the day's own].")] = None,
    workspace: Home = None,
) -> None:
    """Run studies with seeds that no other day has, on today's code, and compare with every sweep before.

    The page says which verdicts flipped, which numbers drifted beyond their noise, and which speeds fell. The exit code is
    1 when a claim flipped or a study came to no verdicts.
    """
    from knockout.cli.night import by_hand, scheduled, spend
    from knockout.cli.pool_names import check_pool_name
    from knockout.errors import InputError
    from knockout.ledger.workspace import open_workspace

    place = open_workspace(workspace)
    if (schedule is None) == (not studies):
        raise InputError("give either --studies or --schedule")
    if schedule is not None and (size is not None or pool is not None):
        raise InputError("--schedule says the size and the pool: give --size and --pool with --studies")
    if pool is not None:
        check_pool_name(pool)
    order = scheduled(schedule, workspace=place) if schedule is not None else by_hand(studies or (), size=size, pool=pool)
    night = spend(order, workspace=place, from_seed=from_seed)
    sys.exit(1 if night.sweep.failed else 0)
