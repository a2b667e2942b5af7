"""Commands that only read declarations: check, plan, params, schema."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from knockout.cli.options import AsJson, Home, Seeds, Set, Size, StudyName


class Declared(StrEnum):
    """What a file may declare."""

    STUDY = "study"
    CORPUS = "corpus"


class Dtype(StrEnum):
    """What a number is stored in."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT8 = "float8"


DTYPE_BYTES = {Dtype.FLOAT32: 4, Dtype.BFLOAT16: 2, Dtype.FLOAT16: 2, Dtype.FLOAT8: 1}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(short_help="Check declarations: every problem at once.")(check)
    app.command(short_help="Show variants, costs, and runs to do and to reuse.")(plan)
    app.command(short_help="Count parameters, FLOPs, cache and bytes.")(params)
    app.command(short_help="Write the JSON Schema of a study or a corpus, for editors.")(schema)


def check(
    studies: Annotated[list[str], typer.Argument(metavar="STUDY...", help="Study files, or names in ablations/.")],
) -> None:
    """Check declarations: every problem of every file, with its line; exit code 2 when there is one.

    What may not be meant is a note, and no problem: claims that cannot be decided, variants that change nothing.
    """
    from knockout.account.matching import plan_study
    from knockout.declare.claims_file import is_claims_file, load_claims
    from knockout.declare.load import find_study, load_study
    from knockout.errors import InputError
    from knockout.judge.foreseen import foreseen

    messages = []
    for name in studies:
        try:
            if is_claims_file(path := find_study(name)):
                print(f"{name}: ok: {_many(len(load_claims([path])), 'claim')} that calculation decides")
                continue
            planned = plan_study(load_study(find_study(name)))
        except InputError as error:
            messages.append(str(error))
        else:
            cells, runs, claims = len(planned.cells), len(planned.runs), len(planned.study.claims)
            print(f"{name}: ok: {_many(cells, 'cell')}, {_many(runs, 'run')}, {_many(claims, 'claim')}")
            for flag in foreseen(planned):
                print(f"{name}: note: {flag.sentence}")
    if messages:
        raise InputError("\n".join(messages))


def plan(
    study: StudyName,
    size: Size = None,
    seeds: Seeds = None,
    set_: Set = None,
    workspace: Home = None,
    resolved: Annotated[bool, typer.Option("--resolved", help="Print every setting of every variant instead.")] = False,
    calibrate: Annotated[
        bool, typer.Option("--calibrate/--no-calibrate", help="Time some steps of cells that never ran on this machine.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Show what a study would do: variants, parameters, FLOPs, runs to do and to reuse, and about how long.

    What never ran here is timed for a few seconds, and remembered; `--no-calibrate` answers at once by a closed form.
    """
    from rich.console import Console

    from knockout.account.matching import plan_study
    from knockout.cli.loading import load
    from knockout.declare.plan import plan_text
    from knockout.ledger.workspace import open_workspace
    from knockout.submission.calibrating import Calibrator, show_calibration
    from knockout.submission.preview import preview
    from knockout.submission.tables import plan_table

    loaded = load(study, size=size, seeds=seeds, settings=set_)
    if resolved:
        print(plan_text(plan_study(loaded)))
        return
    planned, place = plan_study(loaded), open_workspace(workspace)
    with Calibrator(place, progress=show_calibration) as calibrator:
        shown = preview(planned, base=loaded.corpus_base, workspace=place, calibrator=calibrator if calibrate else None)
    if as_json:
        print(json.dumps(shown.to_dict(), indent=1))
    else:
        Console().print(plan_table(shown))


def params(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A preset, a size, a study, or STUDY:VARIANT.")],
    context: Annotated[int | None, typer.Option(min=1, help="Tokens of context instead of the architecture's own.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Sequences, for the KV cache and the activations.")] = 1,
    dtype: Annotated[Dtype, typer.Option("--dtype", help="Of weights, cache and activations.")] = Dtype.BFLOAT16,
    as_json: AsJson = False,
) -> None:
    """Count an architecture without building it: parameters by part, FLOPs a token, KV cache, bytes."""
    from rich.console import Console

    from knockout.account import count
    from knockout.account.activations import activation_bytes
    from knockout.cli.loading import architecture_of
    from knockout.report.accounts import account_table

    size, data = DTYPE_BYTES[dtype], {}
    for title, architecture in architecture_of(name).items():
        account = count(architecture, context=context, batch=batch, weight_bytes=size, cache_bytes=size)
        activations = activation_bytes(architecture, context=context, batch=batch, number_bytes=size)
        data[title] = account.to_dict()
        data[title]["bytes"]["activations"] = activations
        if not as_json:
            Console().print(account_table(account, activations=activations, dtype=dtype.value, title=title))
    if as_json:
        print(json.dumps(next(iter(data.values())) if len(data) == 1 else data, indent=1))


def schema(
    of: Annotated[Declared, typer.Argument(help="What the files declare.")] = Declared.STUDY,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write instead of the terminal.")] = None,
) -> None:
    """Write the JSON Schema of a study or a corpus, for editors."""
    text = json.dumps(_schema(of), indent=2)
    if output is None:
        print(text)
    else:
        _write(output, text=text + "\n")


def _schema(of: Declared) -> dict[str, Any]:
    match of:
        case Declared.STUDY:
            from knockout.declare.study_schema import study_schema

            return study_schema()
        case Declared.CORPUS:
            from knockout.declare.corpus_schema import corpus_schema

            return corpus_schema()


def _write(path: Path, *, text: str) -> None:
    from knockout.errors import InputError

    try:
        path.write_text(text)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
