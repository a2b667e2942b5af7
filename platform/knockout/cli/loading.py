"""From names on the command line to declarations."""

from __future__ import annotations

from collections.abc import Sequence

from knockout import project
from knockout.account.matching import plan_study
from knockout.declare.architecture import Architecture
from knockout.declare.claim import BASELINE
from knockout.declare.load import Loaded, Overrides, find_study, load_preset, load_size, load_study, validate
from knockout.declare.problems import nearest
from knockout.declare.settings import defaults
from knockout.errors import InputError, quoted


def load(
    study: str,
    *,
    size: str | None,
    seeds: int | None,
    settings: list[str] | None,
    settle: bool = False,
    from_seed: int | None = None,
) -> Loaded:
    """A study with the command line's changes."""
    overrides = Overrides(size=size, seeds=seeds, settings=tuple(settings or ()), settle=settle, from_seed=from_seed)
    return load_study(find_study(study), overrides=overrides)


def architecture_of(name: str) -> dict[str, Architecture]:
    """The architectures that a name stands for, by title: a preset's, a size's, or a study's variants.

    Raises:
        InputError: there is nothing of that name.
    """
    if name in project.names("ablations/presets"):
        return {name: validate(load_preset(name), model=Architecture)}
    if name in project.names("ablations/sizes"):
        return {name: defaults().over(load_size(name)).resolve()[0]}
    study, _, variant = name.partition(":")
    try:
        path = find_study(study)
    except InputError:
        known = [*project.names("ablations/presets"), *project.names("ablations/sizes"), *project.names("ablations")]
        there = f"(there are {', '.join(known)}){nearest(name, known)}"
        raise InputError(f"no preset, size or study {quoted(name)} {there}") from None
    cells = plan_study(load_study(path)).cells
    chosen = [cell for cell in cells if variant in ("", cell.variant)]
    if not chosen:
        known = list(dict.fromkeys(cell.variant for cell in cells))
        raise InputError(f"{study} has no variant {quoted(variant)} (there are {', '.join(known)}){nearest(variant, known)}")
    chosen.sort(key=lambda cell: cell.variant != BASELINE)
    return {f"{cell.variant} · {cell.size}": cell.architecture for cell in chosen}


def report_commands(study: str, *, reported: Sequence[str]) -> str:
    """`with others: ...`, a command for each of the arguments that have a report; empty where there are none."""
    commands = [f"`{f'knockout report {study} {arguments}'.strip()}`" for arguments in reported]
    return f"with others: {', '.join(commands)}" if commands else ""


def study_name(study: str) -> str:
    """A study's own name, given that or its file."""
    return load_study(find_study(study)).study.study if study.endswith((".yaml", ".yml")) else study
