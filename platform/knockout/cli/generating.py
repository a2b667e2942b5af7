"""The command that has a trained run write: generate."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from knockout.cli.options import AsJson, Home

if TYPE_CHECKING:
    from knockout.declare.sampling import Sampling
    from knockout.ledger.store import Ledger

LARGEST_SEED = 2**63 - 1
MOST_TOKENS = 2**20
"""Room for as many is made in the cache before the first is written."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Have a trained run go on from a prompt.")(generate)


def generate(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's identity, the start of one, or STUDY:VARIANT.")],
    prompt: Annotated[str, typer.Option(help="Text to go on from; empty is the beginning of a text.")] = "",
    tokens: Annotated[
        int, typer.Option(min=1, max=MOST_TOKENS, help="Most tokens to write; the end of the text stops it before.")
    ] = 100,
    temperature: Annotated[float | None, typer.Option(help="Below 1 sharper, above 1 flatter [default: 1].")] = None,
    top_k: Annotated[int | None, typer.Option("--top-k", help="Choose among the K most probable tokens.")] = None,
    top_p: Annotated[float | None, typer.Option("--top-p", help="Choose among the fewest that have probability P.")] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="Always the most probable token.")] = False,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of the choices.")] = 0,
    scaling: Annotated[
        str | None,
        typer.Option(
            "--rotary-scaling",
            metavar="KIND:FACTOR",
            help="Read a rotary run beyond its context: linear:2, ntk:2 or yarn:4, without retraining.",
        ),
    ] = None,
    workspace: Home = None,
    as_json: AsJson = False,
) -> None:
    """Have a trained run go on from a prompt."""
    from dataclasses import asdict

    from knockout.ledger.store import Ledger
    from knockout.ledger.workspace import open_workspace

    sampling = _sampling(greedy=greedy, top_k=top_k, top_p=top_p, temperature=temperature)
    place = open_workspace(workspace)
    identity = find_run(run, ledger=Ledger(place))

    from knockout.training.continuation import continue_text

    written = continue_text(
        place.run(identity),
        corpora=place.corpora,
        prompt=prompt,
        num_tokens=tokens,
        sampling=sampling,
        seed=seed,
        scaling=scaling,
    )
    if as_json:
        settings = {"seed": seed, "sampling": sampling.model_dump(), "rotary_scaling": scaling}
        print(json.dumps({"run": identity, **settings, **asdict(written)}, indent=1))
    else:
        print(written.prompt + written.text)


def _sampling(*, greedy: bool, top_k: int | None, top_p: float | None, temperature: float | None) -> Sampling:
    from pydantic import TypeAdapter, ValidationError

    from knockout.declare.sampling import Sampling
    from knockout.errors import InputError, in_line

    cuts: dict[str, Any] = {"top_k": top_k, "top_p": top_p}
    given = [kind for kind, value in cuts.items() if value is not None]
    if len(given) > 1 or (greedy and (given or temperature is not None)):
        raise InputError("--greedy, --top-k and --top-p exclude each other, and --greedy takes no --temperature")
    kind = "greedy" if greedy else given[0] if given else "temperature"
    settings = {"k": top_k, "p": top_p, "temperature": temperature}
    declared = {"kind": kind, **{name: value for name, value in settings.items() if value is not None}}
    try:
        return TypeAdapter(Sampling).validate_python(declared)
    except ValidationError as error:
        problem = error.errors()[0]
        option = {"k": "--top-k", "p": "--top-p"}.get(str(problem["loc"][-1]), f"--{problem['loc'][-1]}")
        raise InputError(f"{option} {in_line(str(problem['input']))}: {problem['msg'].removeprefix('Input ')}") from None


def find_run(run: str, *, ledger: Ledger) -> str:
    """The identity that starts so, or of STUDY:VARIANT the finished run of the newest submission with the lowest seed.

    Raises:
        InputError: there is none, or more than one run begins so.
    """
    from knockout.errors import InputError, quoted

    study, colon, variant = run.partition(":")
    if not colon:
        return ledger.find(run).identity
    for submission in ledger.submissions(study):
        asked = sorted(
            (seed, identity)
            for identity, name, _, seed in ledger.asked(submission.submission, role="judged")
            if name == variant
        )
        finished = {found.identity for found in ledger.runs(identity for _, identity in asked) if found.finished}
        for _, identity in asked:
            if identity in finished:
                return identity
    raise InputError(f"no finished run of variant {quoted(variant)} of study {quoted(study)} in {ledger.workspace.folder}")
