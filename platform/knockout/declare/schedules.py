"""Nightly sweeps: when which studies are run anew, and who is told what changed. Declared in flows/schedules.yaml.

The invariant: a time of day is that of a named zone, never the machine's own.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, HttpUrl, field_validator, model_validator

from knockout import project
from knockout.declare.base import Conflict, Declaration, Name, conflicts
from knockout.declare.document import read_document
from knockout.declare.load import validate
from knockout.errors import InputError

FILE = "schedules.yaml"
_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 7))
_NAMES = {
    "month": ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
    "weekday": ("sun", "mon", "tue", "wed", "thu", "fri", "sat"),
}
_ORDINALS = {30: "30th", 31: "31st"}
_POOL = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}")
_PART = re.compile(r"(?:\*|(?P<low>\w+)(?:-(?P<high>\w+))?)(?:/(?P<step>[1-9]\d*))?")


class TellNobody(Declaration):
    """The page of what changed is all."""

    kind: Literal["none"] = "none"


class RunCommand(Declaration):
    """A program is run when something changed; what changed is JSON on its standard input."""

    kind: Literal["command"]
    run: Annotated[list[str], Field(min_length=1)]
    """The program and its arguments; no shell reads them."""


class PostJson(Declaration):
    """What changed is posted as JSON."""

    kind: Literal["webhook"]
    url: HttpUrl
    """An http or https address."""


OnChange = Annotated[TellNobody | RunCommand | PostJson, Field(discriminator="kind")]


class Schedule(Declaration):
    """Studies that are run with fresh seeds at set times, never two sweeps of the same schedule at once."""

    schedule: Name
    """The schedule's name."""
    cron: str
    """When: minute, hour, day of the month, month, day of the week, as in crontab(5)."""
    timezone: str
    """The zone of these times, such as Europe/Berlin."""
    studies: Annotated[list[str], Field(min_length=1)]
    """Names in ablations/, files, or patterns of files such as ablations/*.yaml, or of names such as tiny-*."""
    size: Name | None = None
    """The size instead of each study's own."""
    pool: str = "knockout"
    """The work pool that takes the runs."""
    active: bool = True
    """Whether it runs."""
    on_change: OnChange = TellNobody()
    """Who is told when a sweep found a change."""

    @field_validator("cron")
    @classmethod
    def _is_cron(cls, cron: str) -> str:
        if (wrong := wrong_in_cron(cron)) is not None:
            raise ValueError(wrong)
        return cron

    @field_validator("pool")
    @classmethod
    def _is_a_pool(cls, name: str) -> str:
        if (wrong := wrong_in_pool(name)) is not None:
            raise ValueError(wrong)
        return name

    @field_validator("timezone")
    @classmethod
    def _is_a_zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError("is no time zone: write it as Europe/Berlin, America/New_York or UTC") from None
        return name


class SchedulesFile(Declaration):
    """Every schedule of a project."""

    schedules: list[Schedule] = []
    """The schedules; each name once."""

    @model_validator(mode="after")
    def _named_once(self) -> SchedulesFile:
        conflicts("SchedulesFile", list(self._twice()))
        return self

    def _twice(self) -> Iterator[Conflict]:
        seen: set[str] = set()
        for place, one in enumerate(self.schedules):
            if one.schedule in seen:
                yield f"schedules.{place}.schedule", one.schedule, "another schedule has this name: choose one of its own"
            seen.add(one.schedule)


def load_schedules(file: Path) -> tuple[Schedule, ...]:
    """The schedules that a file declares.

    Raises:
        DeclarationError: with every problem of the file.
        InputError: it cannot be read.
    """
    return tuple(validate(read_document(file), model=SchedulesFile).schedules)


def studies_of(patterns: Sequence[str], *, folder: Path) -> tuple[str, ...]:
    """The studies that names and patterns stand for, each once: names as they are, files by their path from `folder`.

    A pattern without a slash that fits no file there stands for the names in ablations/ that it fits.

    Raises:
        InputError: a pattern fits no study.
    """
    found: dict[str, None] = {}
    for pattern in patterns:
        if not any(mark in pattern for mark in "*?["):
            found[pattern] = None
            continue
        files = sorted(str(path) for path in folder.glob(pattern) if path.suffix in project.ENDINGS)
        found |= dict.fromkeys(files or _named(pattern, folder=folder))
    return tuple(found)


def _named(pattern: str, *, folder: Path) -> list[str]:
    """The names in ablations/ that a pattern which fits no file of a folder stands for. Raises InputError: it fits none."""
    if "/" in pattern:
        raise InputError(f"'{pattern}' fits no study in {folder}")
    known = project.names("ablations")
    if not (found := [name for name in known if fnmatchcase(name, pattern)]):
        there = f"there are {', '.join(known)}" if known else "there are none"
        raise InputError(f"'{pattern}' fits no study in {folder}: no file there, and no name in ablations/ ({there})")
    return found


def wrong_in_cron(cron: str) -> str | None:
    """What is wrong with a cron expression, to be said after it, or None."""
    parts = cron.split()
    if len(parts) != len(_FIELDS):
        return 'is no time of cron: give five fields: minute hour day month weekday, as in "0 2 * * *"'
    for (name, low, high), text in zip(_FIELDS, parts, strict=True):
        for part in text.split(","):
            if not _is_part(part, name=name, low=low, high=high):
                return f"is no time: '{part}' is no {name} of cron: give {low} to {high}, *, {low}-{high} or */2"
    return _never(cron)


def wrong_in_pool(name: str) -> str | None:
    """What is wrong with the name of a work pool, to be said after it, or None."""
    if _POOL.fullmatch(name):
        return None
    return "is no name of a work pool: give letters, digits, spaces and . _ - (64 at most, a letter or digit first)"


def _never(cron: str) -> str | None:
    """Why an expression of right parts never comes, or None: its months have no such day, and it names no weekday.

    Where day and weekday are both restricted, either is enough (crontab(5)).
    """
    texts = cron.lower().split()
    _, _, days, months, weekdays = (_values(text, spec=spec) for text, spec in zip(texts, _FIELDS, strict=True))
    first = min(days)
    if len({day % 7 for day in weekdays}) < 7 or any(first <= _longest(month) for month in months):
        return None
    names = [calendar.month_name[month] for month in sorted(months)]
    have = "has" if len(names) == 1 else "have"
    return f"never comes: {' and '.join(names)} {have} no {_ORDINALS[first]}"


def _longest(month: int) -> int:
    """Days of a month in a leap year."""
    return calendar.monthrange(2000, month)[1]


def _values(text: str, *, spec: tuple[str, int, int]) -> set[int]:
    """The numbers that a field of right parts stands for."""
    name, low, high = spec
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        assert match is not None
        first = low if match["low"] is None else _number(match["low"], name=name)
        assert first is not None
        last = _number(match["high"], name=name) if match["high"] is not None else None
        alone = match["low"] is not None and match["step"] is None
        end = last if last is not None else first if alone else high
        found |= set(range(first, end + 1, int(match["step"] or 1)))
    return found


def _is_part(part: str, *, name: str, low: int, high: int) -> bool:
    found = _PART.fullmatch(part.lower())
    if found is None:
        return False
    ends = [_number(text, name=name) for text in (found["low"], found["high"]) if text is not None]
    return all(end is not None and low <= end <= high for end in ends) and ends == sorted(ends, key=lambda end: end or 0)


def _number(text: str, *, name: str) -> int | None:
    names = _NAMES.get(name, ())
    if text in names:
        return names.index(text) + (1 if name == "month" else 0)
    return int(text) if text.isascii() and text.isdigit() else None
