"""Settings of one cell: defaults, preset, size, recipe, baseline and variant, laid over each other.

The invariant: each value remembers the file and line that set it last, so that what is wrong with a resolved
architecture is reported where the user wrote it.

One flat space holds the fields of Architecture and of Recipe; their names never collide. A patch names a setting
by key or dotted path. A mapping merges into the slot that it names; when it changes the slot's `kind`, those of the
old settings stay that the new kind has too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from knockout.declare.architecture import Architecture, resolved_hidden
from knockout.declare.document import Document, Mark, Path_
from knockout.declare.problems import nearest, problems, tag, union_members
from knockout.declare.recipe import Recipe
from knockout.declare.together import PARTIES, conflicts_between
from knockout.errors import DeclarationError, Problem

MODELS: tuple[type[BaseModel], ...] = (Architecture, Recipe)
FIELDS: dict[str, type[BaseModel]] = {name: model for model in MODELS for name in model.model_fields}
INSTEAD = {"ffn.hidden": "ffn.expansion", "ffn.expansion": "ffn.hidden"}
"""Two ways to say one thing: a patch that says it one way takes back what was said the other way."""


@dataclass(frozen=True)
class Settings:
    """Values by key, where each was written, and what was written that is no setting."""

    data: dict[str, Any] = field(default_factory=dict)
    marks: dict[Path_, Mark] = field(default_factory=dict)
    unknown: tuple[Problem, ...] = ()

    def over(self, patch: Document) -> Settings:
        """These settings with a patch laid over them; what is no setting is kept for `resolve` to report."""
        unknown = tuple(_unknown(key, patch) for key in patch.data if key.split(".")[0] not in FIELDS)
        unknown += tuple(_twice(key, patch) for key in patch.data if any(o.startswith(f"{key}.") for o in patch.data))
        data, marks = dict(self.data), dict(self.marks)
        known = {key: value for key, value in patch.data.items() if key.split(".")[0] in FIELDS}
        for key, value in known.items():
            _lay(data, marks, path=tuple(key.split(".")), value=value, patch=patch, origin=(key,), base=())
        return Settings(data, marks, self.unknown + unknown)

    def resolve(self, *, of: str | None = None) -> tuple[Architecture, Recipe]:
        """The architecture and the recipe that the settings amount to; `of` says whose they are.

        Raises:
            DeclarationError: with every problem of both.
        """
        found = list(self.unknown)
        resolved: list[BaseModel] = []
        for model in MODELS:
            part = {key: value for key, value in self.data.items() if FIELDS[key] is model}
            try:
                resolved.append(model.model_validate_json(json.dumps(part)))
            except ValidationError as error:
                found += problems(error, model=model, document=Document(part, self.marks))
        if found:
            raise DeclarationError(found)
        architecture, recipe = resolved_hidden(cast(Architecture, resolved[0])), cast(Recipe, resolved[1])
        if found := [self._problem(path, rule, of) for path, _, rule in conflicts_between(architecture, recipe=recipe)]:
            raise DeclarationError(found)
        return architecture, recipe

    def _problem(self, path: str, rule: str, of: str | None) -> Problem:
        parties = PARTIES.get(path, ())
        path = next((str(place[0]) for place in reversed(self.marks) if place[0] in parties), path)
        mark = Document(self.data, self.marks).mark(tuple(path.split(".")))
        return Problem(mark.file, mark.line, mark.column, path, f"{rule}: {of}" if of is not None else rule)


def defaults() -> Settings:
    """What every setting is when nobody sets it; dimensions and budget have no default."""
    data = {
        name: (value.model_dump(mode="json") if isinstance(value, BaseModel) else value)
        for model in MODELS
        for name, info in model.model_fields.items()
        if not info.is_required()
        for value in [info.get_default(call_default_factory=True)]
    }
    return Settings(data)


def _unknown(key: str, patch: Document) -> Problem:
    mark = patch.mark((key,))
    allowed = sorted(FIELDS)
    message = f"no such setting; there are {', '.join(allowed)}{nearest(key.split('.')[0], allowed)}"
    return Problem(mark.file, mark.line, mark.column, key, message)


def _twice(key: str, patch: Document) -> Problem:
    mark = patch.mark((key,))
    return Problem(mark.file, mark.line, mark.column, key, "is set as a whole and by a dotted path: write it one way")


def _lay(
    data: dict[str, Any], marks: dict[Path_, Mark], *, path: Path_, value: Any, patch: Document, origin: Path_, base: Path_
) -> None:
    """Set `value` at `path` under `data`, which stands at `base`; `origin` is where the patch's document holds it."""
    key, rest = str(path[0]), path[1:]
    here = (*base, key)
    if rest:
        value, rest_origin = {".".join(map(str, rest)): value}, None
    else:
        rest_origin = origin
    if not isinstance(value, dict):
        data[key] = value
        other = INSTEAD.get(".".join(map(str, here)))
        if other is not None and not _sets(patch, path=other):
            data.pop(other.split(".")[-1], None)
        _mark(marks, here, patch.mark(origin))
        marks |= {(*here, *within[len(origin) :]): mark for within, mark in patch.marks.items() if _is_in(within, origin)}
        return
    old = data.get(key)
    slot = dict(old) if isinstance(old, dict) else {}
    kind = value.get("kind", slot.get("kind"))
    if kind != slot.get("kind"):
        slot = {name: kept for name, kept in slot.items() if name in _fields(base=here, kind=kind)}
    data[key] = slot
    marks.setdefault(here, patch.mark(origin))
    for name, inner in value.items():
        inner_origin = (*rest_origin, name) if rest_origin is not None else origin
        _lay(slot, marks, path=tuple(name.split(".")), value=inner, patch=patch, origin=inner_origin, base=here)
    marks[here] = patch.mark(origin)


def _sets(patch: Document, *, path: str) -> bool:
    """Whether the patch itself sets what stands at a dotted path."""
    slot, _, name = path.partition(".")
    return path in patch.data or (isinstance(patch.data.get(slot), dict) and name in patch.data[slot])


def _is_in(path: Path_, whole: Path_) -> bool:
    return len(path) > len(whole) and path[: len(whole)] == whole


def _mark(marks: dict[Path_, Mark], here: Path_, mark: Mark) -> None:
    for path in [path for path in marks if path[: len(here)] == here]:
        del marks[path]
    marks[here] = mark


def _fields(*, base: Path_, kind: object) -> set[str]:
    """Names of the settings that the slot at `base` has when it is of this kind."""
    top = str(base[0])
    if len(base) != 1 or top not in FIELDS:
        return set()
    members = union_members(FIELDS[top].model_fields[top].annotation)
    return {name for member in members if tag(member) == kind for name in member.model_fields}
