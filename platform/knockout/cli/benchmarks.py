"""The command that measures how fast a corpus is prepared and read: corpus bench."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from knockout.cli.options import AsJson

if TYPE_CHECKING:
    from knockout.corpus.reading import Split
    from knockout.corpus.throughput import Throughput

STEP_SIZE = "nano"
ENOUGH_BYTES = 32_000_000
"""With less text a core, starting the worker processes is much of a preparation."""


def register(app: typer.Typer) -> None:
    """Add the command to the group `corpus`."""
    app.command(short_help="Measure how fast text is prepared and read, beside others.")(bench)


def bench(
    name: Annotated[str, typer.Argument(metavar="[CORPUS]", help="The corpus whose text is taken.")] = "python-source",
    megabytes: Annotated[
        int, typer.Option(min=1, metavar="N", help="How much of its text; more than there is: again.")
    ] = 64,
    as_json: AsJson = False,
) -> None:
    """Measure how fast text is prepared and read, beside what others do with the same text on this machine.

    Rates hold for this machine at this moment; their ratios hold better.
    """
    from knockout.corpus.throughput import measure
    from knockout.declare.load import load_corpus

    shares: list[float] = []

    def peek(split: Split) -> None:
        from knockout.training.step_share import reading_share

        shares.append(reading_share(split, size=STEP_SIZE))

    corpus, base = load_corpus(name)
    found = measure(corpus, base=base, num_bytes=megabytes * 1_000_000, peek=peek)
    if as_json:
        step = {"step_size": STEP_SIZE, "reading_share_of_step": shares[0]}
        typer.echo(json.dumps({**asdict(found), **step, "remark": remark(found) or None}, indent=1))
    else:
        typer.echo("\n".join(filter(None, [*lines(found, share=shares[0]), remark(found)])))


def remark(found: Throughput) -> str:
    """What to say where there was too little text for rates; else nothing."""
    enough = ENOUGH_BYTES * found.cores
    if found.num_bytes >= 0.9 * enough:
        return ""
    return f"so little text shows the start of processes more than rates: take --megabytes {enough // 1_000_000} or more"


def lines(found: Throughput, *, share: float) -> list[str]:
    """A table of rates, each beside ours."""
    from knockout.corpus.throughput import PEERS, WINDOW_TOKENS

    head = f"{found.num_bytes / 1e6:.1f} MB of text, {found.cores} cores"
    rows = [f"{'knockout, all of a preparation but learning merges':<52}{found.prepared / 1e6:>8.1f} MB/s"]
    for peer, name in PEERS.items():
        if peer in found.peers:
            rate = found.peers[peer]
            rows.append(f"{name:<52}{rate / 1e6:>8.1f} MB/s   knockout is {found.prepared / rate:.1f} × as fast")
        else:
            rows.append(f"{name:<52}   not installed")
    rows.append(f"{f'random windows of {WINDOW_TOKENS:,} tokens':<52}{found.windows / 1e9:>8.2f} GB/s")
    rows.append(f"{f'reading a batch, of a training step of {STEP_SIZE}':<52}{100 * share:>8.2f} %")
    return [head, *rows]
