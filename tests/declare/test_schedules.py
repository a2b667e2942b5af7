"""Schedules as they are declared: what is refused, and where."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from knockout.declare.schedules import Schedule, load_schedules, studies_of, wrong_in_cron, wrong_in_pool
from knockout.errors import DeclarationError, InputError

ONE = """
schedules:
  - schedule: nightly
    cron: "0 2 * * *"
    timezone: Europe/Berlin
    studies: [ablations/*.yaml]
    size: nano
    on_change: {kind: command, run: [mail, me]}
"""


def declared(text: str, folder: Path) -> tuple[Schedule, ...]:
    file = folder / "schedules.yaml"
    file.write_text(text)
    return load_schedules(file)


def test_a_file_is_read_with_its_hook(tmp_path):
    (one,) = declared(ONE, tmp_path)
    assert (one.schedule, one.cron, one.timezone, one.size, one.active) == (
        "nightly",
        "0 2 * * *",
        "Europe/Berlin",
        "nano",
        True,
    )
    assert one.on_change.kind == "command"
    (posts,) = declared(
        ONE.replace("{kind: command, run: [mail, me]}", "{kind: webhook, url: 'https://a.example/x'}"), tmp_path
    )
    assert posts.on_change.kind == "webhook"


@pytest.mark.parametrize(
    ("found", "wanted", "says"),
    [
        ('"0 2 * * *"', '"0 25 * * *"', r"schedules\.yaml:4:.*'25' is no hour of cron: give 0 to 23"),
        (
            '"0 2 * * *"',
            '"0 2 * *"',
            r"'0 2 \* \*' is no time of cron: give five fields: minute hour day month weekday, as in \"0 2",
        ),
        ("Europe/Berlin", "Berlin", r"schedules\.yaml:5:.*'Berlin' is no time zone"),
        ("size: nano", "sise: nano", "sise"),
        ("kind: command, run: [mail, me]", "kind: comand, run: [mail, me]", "comand"),
        ("kind: command, run: [mail, me]", "kind: webhook, url: ftp://x", "url"),
        ("studies: [ablations/*.yaml]", "studies: []", "studies"),
    ],
)
def test_what_is_wrong_is_refused_at_its_place(tmp_path, found: str, wanted: str, says: str):
    with pytest.raises(DeclarationError, match=says):
        declared(ONE.replace(found, wanted), tmp_path)


def test_a_name_is_given_once(tmp_path):
    with pytest.raises(DeclarationError, match="another schedule has this name"):
        declared(ONE + ONE.removeprefix("\nschedules:\n"), tmp_path)


@pytest.mark.parametrize(
    ("cron", "says"),
    [
        ("0 2 30 2 *", "never comes: February has no 30th"),
        ("0 2 31 feb,4,JUN *", "February and April and June have no 31st"),
        ("0 2 31 2-4/2 */1", "February and April have no 31st"),
        ("0 2 30/1 2 0-6", "February has no 30th"),
        ("0 2 29 2 *", None),
        ("0 2 30 2 mon", None),
        ("0 2 31 */2 *", None),
        ("0 2 */30 2 *", None),
    ],
)
def test_a_time_that_no_year_has_is_refused(cron: str, says: str | None):
    wrong = wrong_in_cron(cron)
    assert wrong is None if says is None else says in str(wrong)


@pytest.mark.parametrize("name", ["", " gpus", "bad name/ü", "a%2f", "a" * 65])
def test_what_is_no_name_of_a_pool(name: str, tmp_path):
    assert wrong_in_pool("A pool of GPUs.2_x-y") is None
    with pytest.raises(DeclarationError, match=r"schedules\.yaml:.*is no name of a work pool"):
        declared(f"{ONE.rstrip()}\n    pool: {json.dumps(name)}\n", tmp_path)


@pytest.mark.parametrize("cron", ["* * * * *", "*/5 1-3,5 1 jan,DEC mon-fri", "0 0 31 12 7", "15-45/10 2 * * 0"])
def test_cron_as_crontab_has_it(cron: str):
    assert wrong_in_cron(cron) is None


@pytest.mark.parametrize(
    "cron", ["@daily", "60 * * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "5-3 * * * *", "*/0 * * * *", "² * * * *"]
)
def test_what_is_no_cron(cron: str):
    assert wrong_in_cron(cron) is not None


@pytest.mark.parametrize("cron", ["rubbish", "@daily", "", "0 2 * * * *"])
def test_what_has_not_five_fields_is_told_what_is_right(cron: str):
    says = 'is no time of cron: give five fields: minute hour day month weekday, as in "0 2 * * *"'
    assert wrong_in_cron(cron) == says


def test_a_pattern_without_a_slash_stands_for_names_where_no_file_fits(tmp_path, monkeypatch):
    (tmp_path / "ablations").mkdir()
    for name in ("tiny-b.yaml", "tiny-a.yml", "tinier.yaml", "tiny-c.md"):
        (tmp_path / "ablations" / name).write_text("")
    monkeypatch.chdir(tmp_path)
    assert studies_of(["tiny-*", "tini?r", "tiny-a"], folder=tmp_path) == ("tiny-a", "tiny-b", "tinier")
    with pytest.raises(
        InputError, match=r"'Tiny-\*' fits no study in .*: no file there, and no name in ablations/ \(there .*tiny-a"
    ):
        studies_of(["Tiny-*"], folder=tmp_path)
    with pytest.raises(InputError, match=r"'ablation/tiny-\*' fits no study"):
        studies_of(["ablation/tiny-*"], folder=tmp_path)
    files = tuple(str(tmp_path / "ablations" / name) for name in ("tiny-a.yml", "tiny-b.yaml"))
    assert studies_of(["tiny-*"], folder=tmp_path / "ablations") == files
    assert studies_of(["ablations/tiny-*"], folder=tmp_path) == files


def test_patterns_stand_for_files_and_names_for_themselves(tmp_path):
    for name in ("b.yaml", "a.yaml", "notes.md"):
        (tmp_path / name).write_text("")
    both = (str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml"))
    assert studies_of(["*", "residual", "a.*"], folder=tmp_path) == (*both, "residual")
    with pytest.raises(InputError, match=r"'\*\.yml' fits no study"):
        studies_of(["*.yml"], folder=tmp_path)
