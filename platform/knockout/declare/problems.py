"""What pydantic found, in the user's terms: file, line, path, what was found, what is allowed, the nearest name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

from pydantic import AliasChoices, BaseModel, ValidationError
from pydantic_core import ErrorDetails

from knockout.errors import Problem, quoted

if TYPE_CHECKING:  # the YAML reader, which a training process does without
    from knockout.declare.document import Document, Path_


def nearest(name: str, allowed: Iterable[str]) -> str:
    """'; did you mean …?' when something allowed resembles the name, else nothing."""
    close = _closest(name, allowed)
    return f"; did you mean '{close}'?" if close is not None else ""


def _closest(name: str, allowed: Iterable[str]) -> str | None:
    """The most similar of what is allowed, whatever the case of its letters."""
    by_name = {option.casefold(): option for option in allowed}
    close = difflib.get_close_matches(name.casefold(), list(by_name), n=1, cutoff=0.55)
    return by_name[close[0]] if close else None


def not_among(value: object, *, what: str, allowed: Iterable[str]) -> str:
    """The sentence for a value that is not one of a closed set."""
    options = list(allowed)
    return f"{quoted(str(value))} is not {what} ({', '.join(options)}){nearest(str(value), options)}"


def problems(error: ValidationError, *, model: type[BaseModel], document: Document) -> list[Problem]:
    """Every problem of a validation error, at the place in the document where it was written."""
    details = error.errors(include_url=False)
    told = [detail for detail in details if not _other_way(detail, details) and not _follows(detail)]
    missing: dict[tuple[int | str, ...], list[str]] = {}
    for detail in details:
        if detail["type"] == "missing":
            missing.setdefault(detail["loc"][:-1], []).append(str(detail["loc"][-1]))
    found = [
        _problem(detail, model=model, document=document, missing=missing.get(detail["loc"][:-1], ())) for detail in told
    ]
    merged: dict[tuple[object, ...], Problem] = {}
    for problem in found:
        place = (problem.file, problem.line, problem.path)
        other = merged.get(place)
        merged[place] = problem if other is None else replace(other, message=_either(other.message, problem.message))
    return list(merged.values())


def _other_way(detail: ErrorDetails, details: list[ErrorDetails]) -> bool:
    """Whether this says only that a mapping or a list is not what might stand there instead."""
    others = {"dict": ("literal_error", "list_type"), "list": ("literal_error", "model_type")}
    return detail["type"] in others.get(type(detail["input"]).__name__, ()) and len(details) > 1


def _follows(detail: ErrorDetails) -> bool:
    """Whether a list is called too short only because something in it is wrong."""
    return detail["type"] == "too_short" and len(detail["input"]) >= detail.get("ctx", {})["min_length"]


def _either(first: str, second: str) -> str:
    """What is wrong with a value that suits neither of two types: one sentence, not two that contradict each other."""
    ours, theirs = first.split(), second.split()
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ours, theirs, strict=False)))
    return f"{first}, or {' '.join(theirs[shared:])}"


def union_members(annotation: Any) -> tuple[type[BaseModel], ...]:
    """The model classes that an annotation admits, through Annotated, unions, lists, mappings and optionals."""
    if get_origin(annotation) is Annotated:
        return union_members(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType, list, tuple, dict):
        return tuple(member for part in get_args(annotation) for member in union_members(part))
    return (annotation,) if isinstance(annotation, type) and issubclass(annotation, BaseModel) else ()


def key_of(model: type[BaseModel], field: str) -> str:
    """The key under which a field is written."""
    return model.model_fields[field].alias or field


def _problem(detail: ErrorDetails, *, model: type[BaseModel], document: Document, missing: Sequence[str]) -> Problem:
    """One problem; `missing` are the required keys that are not written beside it."""
    place = _locate(detail["loc"], model=model, data=document.data)
    mark = document.mark(place.path)
    message = _message(detail, place=place, missing=missing)
    return Problem(mark.file, mark.line, mark.column, ".".join(str(part) for part in place.path), message)


@dataclass(frozen=True)
class _Place:
    """Where in the user's data something is wrong."""

    path: Path_
    """Without pydantic's tags of unions."""
    owner: tuple[type[BaseModel], ...]
    """The models that the last step may belong to."""
    others: tuple[type[BaseModel], ...]
    """Those that another tag would have chosen in their place."""


def _locate(loc: tuple[int | str, ...], *, model: type[BaseModel], data: Any) -> _Place:
    path: list[str | int] = []
    here: Any = data
    owners: tuple[type[BaseModel], ...] = (model,)
    others: tuple[type[BaseModel], ...] = ()
    for index, step in enumerate(loc):
        last = index == len(loc) - 1
        known = {key_of(owner, name): owner.model_fields[name].annotation for owner in owners for name in owner.model_fields}
        if isinstance(here, dict) and (step in here or (last and step in known)):
            path.append(step)
            here = here.get(step)
            if not last:
                owners, others = union_members(known[step]) if step in known else owners, ()
        elif isinstance(here, list) and str(step).isdigit():
            place = int(step)
            path.append(place)
            here = here[place] if place < len(here) else None
        else:
            chosen = tuple(owner for owner in owners if step in _tags(owner)) or owners
            owners, others = chosen, tuple(owner for owner in owners if owner not in chosen)
    return _Place(tuple(path), owners, others)


def tag(model: type[BaseModel]) -> object:
    """The one value of the key that discriminates a union's member; None when it has none, or several."""
    values = _tags(model)
    return values[0] if len(values) == 1 else None


def _tags(model: type[BaseModel]) -> tuple[object, ...]:
    field = _tag_field(model)
    return get_args(model.model_fields[field].annotation) if field is not None else ()


def _tag_field(model: type[BaseModel]) -> str | None:
    return next((name for name in ("kind", "mode", "relation") if name in model.model_fields), None)


def _message(detail: ErrorDetails, *, place: _Place, missing: Sequence[str]) -> str:
    path, owner = place.path, place.owner
    found, context = detail["input"], detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            allowed = sorted({key_of(model, name) for model in owner for name in model.model_fields})
            elsewhere = _elsewhere(str(path[-1]), others=place.others)
            likely = nearest(str(path[-1]), allowed) or (nearest(missing[0], missing) if len(missing) == 1 else "")
            return f"unknown key; allowed are {', '.join(allowed)}{elsewhere or likely}"
        case "dict_type" if isinstance(found, str) and any(_tags(part) for part in _parts(owner, path)):
            return _to_be_written(found, members=_parts(owner, path))
        case "missing":
            return "this key is required and missing"
        case "union_tag_invalid":
            allowed = [tag.strip("'") for tag in str(context["expected_tags"]).split(", ")]
            said = not_among(context["tag"], what=_article(str(path[-1]) if path else "kind"), allowed=allowed)
            return said + _default(context["tag"], said=said, owner=owner, path=path)
        case "union_tag_not_found":
            return f"needs a key {_discriminator(context)} that says which"
        case "list_type" | "tuple_type":
            return f"{_show(found)} should be a list"
        case "dict_type" | "model_type" | "model_attributes_type":
            return f"{_show(found)} should be a mapping"
        case "bool_type":
            return f"{_show(found)} should be true or false"
        case "literal_error":
            allowed = [option.strip("'") for option in str(context["expected"]).replace(" or ", ", ").split(", ")]
            return not_among(found, what="allowed here", allowed=allowed)
        case "conflict":
            return f"{_show(found)}: {detail['msg']}"
        case "string_too_short" if context["min_length"] == 1:
            return "'' must not be empty"
        case "too_short":
            return f"{_show(found)} must have at least {_items(context['min_length'])}, has {context['actual_length']:,}"
        case "too_long":
            return f"must have at most {_items(context['max_length'])}"
        case "string_pattern_mismatch":
            return f"{_show(found)} must be lower-case letters, digits and . _ + - only, 80 at most"
        case _:
            rule = detail["msg"].removeprefix("Input ").removeprefix("Value error, ")
            return f"{_show(found)} {rule[:1].lower()}{rule[1:]}"


def _elsewhere(key: str, *, others: Sequence[type[BaseModel]]) -> str:
    """Which other members of a union have a key that this one has not."""
    having = [member for member in others if key in _keys(member)]
    tags = {member: key_of(member, field) for member in having if (field := _tag_field(member)) is not None}
    named = [f"`{key}: {' | '.join(map(str, _tags(member)))}`" for member, key in tags.items()]
    return f"; {' and '.join(named)} {'has' if len(named) == 1 else 'have'} it" if named else ""


def _keys(model: type[BaseModel]) -> set[str]:
    """Every key that a model takes, other spellings included."""
    spellings = [info.validation_alias for info in model.model_fields.values()]
    others = [choice for spelling in spellings if isinstance(spelling, AliasChoices) for choice in spelling.choices]
    return {key_of(model, name) for name in model.model_fields} | {choice for choice in others if isinstance(choice, str)}


def _to_be_written(found: str, *, members: tuple[type[BaseModel], ...]) -> str:
    """How a union's member is written of which only a word is given."""
    keys = {key_of(member, field) for member in members if (field := _tag_field(member)) is not None}
    options = list(dict.fromkeys(str(value) for member in members for value in _tags(member)))
    key, likely = sorted(keys)[0], _closest(found, options)
    if likely is not None:
        return f"'{found}' must be a mapping: write {{{key}: {likely}}}"
    return f"{_show(found)} must be a mapping with a key `{key}` that says which ({', '.join(options)})"


def _default(tag_: object, *, said: str, owner: tuple[type[BaseModel], ...], path: Path_) -> str:
    """What `none` may have been meant to be where a union has no such member: what holds if nothing is written."""
    if tag_ != "none" or "did you mean" in said or not path:
        return ""
    defaults = [model.model_fields[name].default for model in owner if (name := str(path[-1])) in model.model_fields]
    known = [value for default in defaults if isinstance(default, BaseModel) for value in _tags(type(default))]
    return f"; did you mean '{known[0]}', the default?" if known else ""


def _items(count: int) -> str:
    return f"{count:,} item" if count == 1 else f"{count:,} items"


def _discriminator(context: Mapping[str, Any]) -> str:
    """The key that is written; pydantic names the field and its alias."""
    return str(context["discriminator"]).split(" | ")[-1].strip("'")


def _parts(owner: tuple[type[BaseModel], ...], path: Path_) -> tuple[type[BaseModel], ...]:
    """What the last step of a path may hold."""
    fields = [model.model_fields[str(path[-1])] for model in owner if str(path[-1]) in model.model_fields]
    return tuple(part for info in fields for part in union_members(info.annotation))


def _article(noun: str) -> str:
    return f"an {noun}" if noun[:1] in "aeiou" else f"a {noun}"


def _show(value: object) -> str:
    if value is None or isinstance(value, NoneType):
        return "null"
    value = list(value) if isinstance(value, tuple) else value
    text = f"'{value}'" if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 80 else text[:77] + "…"
