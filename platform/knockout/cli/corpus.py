"""Commands on corpora: corpus prepare, show, verify, list."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

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

    from knockout.corpus.kept import kept
    from knockout.ledger.workspace import open_workspace
    from knockout.report.corpus_list import list_data, list_table

    declared, prepared = _declared(), kept(open_workspace(workspace).corpora)
    if as_json:
        print(json.dumps(list_data(declared, kept=prepared), indent=1))
    else:
        Console().print(list_table(declared, kept=prepared))


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
    from knockout.cli.stages import Stages
    from knockout.corpus.prepare import prepare as prepare_corpus
    from knockout.declare.load import find_corpus, read_corpus
    from knockout.ledger.workspace import open_workspace

    corpus, base = read_corpus(find_corpus(name))
    folder = open_workspace(workspace).corpora
    chosen = vocabulary if vocabulary is not None else _vocabulary(corpus.corpus, folder=folder)
    with Stages() as stages:
        stages("looking for changes", 0.0)
        prepared = prepare_corpus(corpus, vocabulary=chosen, folder=folder, base=base, progress=stages)
    if as_json:
        about = {"corpus": corpus.corpus, "vocabulary": chosen, "digest": prepared.manifest.digest}
        print(json.dumps({**about, "folder": str(prepared.folder), "reused": prepared.reused}, indent=1))
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

    folder = _prepared(name, vocabulary=vocabulary, workspace=workspace)
    with Stages() as stages:
        found = inspect(folder, windows=windows, progress=lambda fraction: stages("reading", fraction))
    if as_json:
        print(json.dumps(inspection_data(found), indent=1))
    else:
        Console().print(inspection_text(found), highlight=False)


@app.command(short_help="Check every token of a prepared corpus.")
def verify(name: PreparedName, vocabulary: Vocabulary = None, workspace: Home = None, as_json: AsJson = False) -> None:
    """Check a prepared corpus against its manifest: every file and token, its counts, exam and digest, and that no document
    is in both splits.

    Exit code 0: it is what its manifest says. Exit code 1: it is not; each fault is named.
    """
    from knockout.cli.stages import Stages
    from knockout.corpus.verifying import faults

    folder = _prepared(name, vocabulary=vocabulary, workspace=workspace)
    with Stages() as stages:
        found = list(faults(folder, progress=stages))
    if as_json:
        print(json.dumps({"folder": str(folder), "faults": found}, indent=1))
    else:
        print("\n".join(found) or f"{folder}: is what its manifest says; no document is in both splits")
    sys.exit(1 if found else 0)


def _declared() -> dict[str, Any]:
    """Every corpus of data/ by name; in place of one that is wrong, what is wrong with it."""
    from knockout import project
    from knockout.declare.load import load_corpus
    from knockout.errors import InputError

    found: dict[str, Any] = {}
    for name in project.names("data"):
        try:
            found[name] = load_corpus(name)[0]
        except InputError as error:
            found[name] = str(error)
    return found


def _vocabulary(name: str, *, folder: Path) -> int:
    """That of the prepared corpus of this name, or the smallest size's where there is none."""
    from knockout.corpus.kept import kept
    from knockout.declare.load import load_size
    from knockout.errors import InputError

    known = sorted({one.vocabulary for one in kept(folder) if one.name == name})
    if len(known) > 1:
        said = ", ".join(f"{size:,}" for size in known)
        raise InputError(f"corpus {name} is prepared with vocabularies of {said}: say which with --vocabulary")
    return known[0] if known else load_size("pico").data["vocabulary"]


def _prepared(name: str, *, vocabulary: int | None, workspace: Path | None) -> Path:
    """The folder of the prepared corpus that is meant.

    Raises:
        InputError: there is no corpus of that name, or it is not prepared, or several times.
    """
    from knockout import project
    from knockout.corpus.kept import choose, kept
    from knockout.declare.load import as_path, read_corpus
    from knockout.declare.problems import nearest
    from knockout.errors import InputError
    from knockout.ledger.workspace import open_workspace

    folder = open_workspace(workspace).corpora
    here = kept(folder)
    known = sorted({*project.names("data"), *(one.name for one in here)})
    if name not in known and name not in [one.folder.name for one in here]:
        if (path := as_path(name)) is None:
            raise InputError(f"no corpus '{name}' (there are {', '.join(known)}){nearest(name, known)}")
        return choose(read_corpus(path)[0].corpus, vocabulary=vocabulary, folder=folder, said=name).folder
    return choose(name, vocabulary=vocabulary, folder=folder, said=name).folder


def _sentence(prepared: Prepared, *, seconds: float) -> str:
    """What was done, and what is there now."""
    from knockout.report.accounts import num_bytes

    manifest = prepared.manifest
    sides = (manifest.splits.train, manifest.splits.validation)
    raw, tokens = sum(side.raw_bytes for side in sides), sum(side.tokens for side in sides)
    name = f"corpus {manifest.declaration.corpus}, vocabulary {manifest.vocabulary:,}"
    there = f"{sum(side.documents for side in sides):,} documents, {tokens:,} tokens, digest {manifest.digest[:16]}…"
    if prepared.reused:
        return f"{name}: nothing changed ({seconds:.1f} s): {there}\n{prepared.folder}"
    rate = num_bytes(raw / max(seconds, 1e-3))
    return f"{name}: prepared in {seconds:.1f} s ({num_bytes(raw)} of text, {rate} a second): {there}\n{prepared.folder}"
