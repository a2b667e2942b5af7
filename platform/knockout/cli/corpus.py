"""Commands on corpora: corpus prepare, show, verify, list."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from knockout.cli import benchmarks
from knockout.cli.options import AsJson, Home

if TYPE_CHECKING:
    from pathlib import Path

    from knockout.corpus.prepare import Prepared

CorpusName = Annotated[str, typer.Argument(metavar="NAME", help="A corpus in data/, or its file.")]
PreparedName = Annotated[
    str, typer.Argument(metavar="NAME", help="A corpus in data/, its file, or the folder of a prepared one.")
]
Vocabulary = Annotated[
    int | None, typer.Option("--vocabulary", metavar="V", min=2, help="Which one, where it is prepared with several.")
]

app = typer.Typer(no_args_is_help=True, help="Prepare corpora, and look into them.")
benchmarks.register(app)


def register(parent: typer.Typer) -> None:
    """Add the commands."""
    parent.add_typer(app, name="corpus", short_help="Prepare corpora, and look into them: list, prepare, show, verify.")


@app.command(name="list", short_help="List the corpora that are declared and prepared.")
def list_(workspace: Home = None, as_json: AsJson = False) -> None:
    """List the corpora that are declared in data/, and those that are prepared in the workspace, with their sizes."""
    from rich.console import Console

    from knockout.cli.corpus_names import all_declared
    from knockout.corpus.kept import kept
    from knockout.ledger.workspace import find_workspace
    from knockout.report.corpus_list import list_data, list_text

    declared, prepared, console = all_declared(), kept(find_workspace(workspace).corpora), Console()
    if as_json:
        print(json.dumps(list_data(declared, kept=prepared), indent=1))
    else:
        console.print(list_text(declared, kept=prepared, width=console.width), highlight=False)


@app.command(short_help="Prepare a corpus: tokens, splits, exam, floors.")
def prepare(
    name: CorpusName,
    vocabulary: Annotated[
        int | None,
        typer.Option(
            "--vocabulary", metavar="V", min=2, help="Tokens [default: as it was prepared before, or as the size pico has]."
        ),
    ] = None,
    workspace: Home = None,
    as_json: AsJson = False,
) -> None:
    """Prepare a corpus: read it, learn its tokenizer, write its tokens in shards, and measure its floors.

    What was cut off is gone on with; what is there already is only checked, and said to be unchanged. A study prepares its
    corpus by itself.
    """
    from knockout.cli.corpus_names import misnamed, usual_vocabulary
    from knockout.cli.stages import Stages
    from knockout.corpus.prepare import prepare as prepare_corpus
    from knockout.declare.load import find_corpus, read_corpus
    from knockout.ledger.workspace import find_workspace, open_workspace

    path = find_corpus(name)
    corpus, base = read_corpus(path)
    if said := misnamed(path, corpus=corpus):
        typer.echo(said, err=True)
    place = find_workspace(workspace)  # one that nobody may write serves where nothing changed
    folder = place.corpora if place.corpora.is_dir() else open_workspace(workspace).corpora
    chosen = vocabulary if vocabulary is not None else usual_vocabulary(corpus.corpus, folder=folder)
    with Stages() as stages:
        stages("looking for changes", 0.0)
        prepared = prepare_corpus(corpus, vocabulary=chosen, folder=folder, base=base, progress=stages)
    if as_json:
        about = {"corpus": corpus.corpus, "vocabulary": chosen, "digest": prepared.manifest.digest}
        state = {"folder": str(prepared.folder), "reused": prepared.reused, "damage": prepared.damage}
        print(json.dumps({**about, **state}, indent=1))
    else:
        print(_sentence(prepared, seconds=stages.seconds))


@app.command(short_help="Show what is in a prepared corpus.")
def show(
    name: PreparedName,
    vocabulary: Vocabulary = None,
    windows: Annotated[int, typer.Option(min=0, max=100, help="Stretches of text to show of each split.")] = 2,
    workspace: Home = None,
    as_json: AsJson = False,
) -> None:
    """Show what is in a prepared corpus: documents, tokens, lengths, splits, floors, frequent tokens, some of its text."""
    from rich.console import Console

    from knockout.cli.stages import Stages
    from knockout.corpus.inspection import inspect
    from knockout.report.corpora import inspection_data, inspection_text

    folder = _folder(name, vocabulary=vocabulary, workspace=workspace)
    with Stages() as stages:
        found = inspect(folder, windows=windows, progress=lambda fraction: stages("reading", fraction))
    if as_json:
        print(json.dumps(inspection_data(found), indent=1))
    else:
        Console().print(inspection_text(found), highlight=False)


@app.command(short_help="Check every token of a prepared corpus.")
def verify(name: PreparedName, vocabulary: Vocabulary = None, workspace: Home = None, as_json: AsJson = False) -> None:
    """Check a prepared corpus against its manifest: every file and token, its counts, exam and digest, and that no document
    is in both splits, where it is text.

    Exit code 0: it is what its manifest says. Exit code 1: it is not; each fault is named.
    """
    from knockout.cli.stages import Stages
    from knockout.corpus.manifest import read_manifest
    from knockout.corpus.verifying import faults
    from knockout.declare.generators import Generator

    folder = _folder(name, vocabulary=vocabulary, workspace=workspace)
    with Stages() as stages:
        found = list(faults(folder, progress=stages))
    if as_json:
        print(json.dumps({"folder": str(folder), "faults": found}, indent=1))
    else:
        drawn = not found and isinstance(read_manifest(folder).declaration.source, Generator)
        apart = "" if drawn else "; no document is in both splits"
        print("\n".join(found) or f"{folder}: is what its manifest says{apart}")
    sys.exit(1 if found else 0)


def _folder(name: str, *, vocabulary: int | None, workspace: Path | None) -> Path:
    """The folder of the prepared corpus that is meant; that there are earlier ones is said on standard error."""
    from knockout.cli.corpus_names import earlier, find_prepared
    from knockout.ledger.workspace import find_workspace

    place = find_workspace(workspace).corpora
    chosen = find_prepared(name, vocabulary=vocabulary, folder=place)
    if others := earlier(chosen, folder=place):
        names = ", ".join(f"{one.folder.name} ({one.when})" for one in others)
        typer.echo(f"{chosen.name} is meant; prepared of other text or another declaration: {names}", err=True)
    return chosen


def _sentence(prepared: Prepared, *, seconds: float) -> str:
    """What was done, and what is there now."""
    from knockout.report.accounts import num_bytes
    from knockout.report.corpora import remarks

    manifest = prepared.manifest
    sides = (manifest.splits.train, manifest.splits.validation)
    raw, tokens = sum(side.raw_bytes for side in sides), sum(side.tokens for side in sides)
    name = f"corpus {manifest.declaration.corpus}, vocabulary {manifest.vocabulary:,}"
    there = f"{sum(side.documents for side in sides):,} documents, {tokens:,} tokens, digest {manifest.digest[:16]}…"
    if prepared.reused:
        return f"{name}: nothing changed ({seconds:.1f} s): {there}\n{prepared.folder}"
    rate = num_bytes(raw / max(seconds, 1e-3))
    mended = "" if prepared.damage is None else f"{name}: the one that was there is replaced: {prepared.damage}\n"
    did = f"{name}: prepared in {seconds:.1f} s ({num_bytes(raw)} of text, {rate} a second)"
    return "\n".join([f"{mended}{did}: {there}", *remarks(manifest), str(prepared.folder)])
