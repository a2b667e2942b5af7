"""The command that decides the documents' claims by calculation: reproduce."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from knockout.cli.options import AsJson


class Kind(StrEnum):
    """How a claim is decided."""

    COUNT = "count"
    IDENTITY = "identity"


_ARTICLES = {Kind.COUNT: "a count", Kind.IDENTITY: "an identity"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Decide claims that need no training.")(reproduce)


def reproduce(
    kind: Annotated[list[Kind] | None, typer.Option("--kind", help="Only claims decided so; repeatable.")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="ID", help="Only this claim, with its further readings ID.*; repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Decide claims of ablations/claims/ by calculation: exact counts, and properties checked in float64.

    A refuted claim is a result, not a failure.
    """
    from rich.console import Console

    from knockout.declare.claims_file import choose, load_claims, titles_of
    from knockout.errors import InputError
    from knockout.judge.calculating import calculate
    from knockout.report.calculated import calculated_verdicts, summary

    chosen = choose(load_claims(), kinds=[item.value for item in kind or ()], ids=only or ())
    if not chosen:
        raise InputError(f"none of these claims is {' or '.join(_ARTICLES[item] for item in kind or ())}")
    verdicts = list(calculate(chosen))
    if as_json:
        print(json.dumps([verdict.to_dict() for verdict in verdicts], indent=1))
        return
    console = Console()
    console.print(calculated_verdicts(verdicts, console=console), soft_wrap=not console.is_terminal)
    print(summary(verdicts))
    if titles := titles_of(chosen):
        print("; ".join(f"{name} = {title}" for name, title in titles.items()))
