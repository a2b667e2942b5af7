"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

StudyName = Annotated[str, typer.Argument(metavar="STUDY", help="A study's file, or its name in ablations/.")]
STUDIES = "A study, a pattern of names such as 'tiny-*', or of files such as 'ablations/*.yaml'; repeatable."
"""What `--studies` takes."""
Size = Annotated[str | None, typer.Option("--size", help="Run at this size instead of the study's own.")]
Seeds = Annotated[int | None, typer.Option("--seeds", min=1, help="Number of seeds instead of the study's own.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Change a setting of the baseline; repeatable.")
]
Settle = Annotated[bool, typer.Option("--settle", help="Add the study's declared seeds while a claim is open.")]
FromSeed = Annotated[
    int | None, typer.Option("--from-seed", min=0, help="First seed, as many from there on as the study has.")
]
Home = Annotated[
    Path | None, typer.Option("--workspace", help="The workspace folder [default: $KNOCKOUT_HOME or ./.knockout].")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print plain data instead of text.")]
Devices = Annotated[int | None, typer.Option("--devices", min=1, help="Devices each run takes instead of the study's own.")]
Strategy = Annotated[
    Literal["ddp", "fsdp"] | None,
    typer.Option("--strategy", help="What a run's devices share: ddp the data, fsdp the weights."),
]
Slots = Annotated[int | None, typer.Option(min=1, help="Runs at a time [default: one for each core or GPU].")]
RunSeconds = Annotated[float | None, typer.Option(min=1, help="Longest time a run may take.")]
StudySeconds = Annotated[float | None, typer.Option(min=1, help="Longest time the whole study may take.")]
CheckPruning = Annotated[
    bool, typer.Option("--check-pruning", help="Train pruned trials to their ends too: was a better one among them?")
]
Prefect = Annotated[bool, typer.Option("--prefect/--no-prefect", help="Drive the study through Prefect.")]
Mlflow = Annotated[bool, typer.Option("--mlflow/--no-mlflow", help="Mirror runs to MLflow.")]
