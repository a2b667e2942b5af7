"""`knockout schedule` without a server: what is refused before anything is written, and entries that cannot be."""

from __future__ import annotations

import json

import pytest

ADD = ("schedule", "add", "n1", "--cron", "0 2 * * *")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (("--cron", "0 2 30 2 *", "--studies", "small"), "--cron: '0 2 30 2 *' never comes: February has no 30th"),
        (("--studies", "nothere"), "no study 'nothere' in ablations/"),
        (("--studies", "abl/*.yaml"), "'abl/*.yaml' fits no study in"),
        (
            ("--cron", "rubbish", "--studies", "small"),
            "--cron: 'rubbish' is no time of cron: give five fields",
        ),
        (("--studies", "smal?-*"), "no file there, and no name in ablations/ (there are "),
        (("--studies", "small", "--size", "giant"), "no size 'giant' in ablations/sizes/"),
        (("--studies", "small", "--pool", "bad name/ü"), "--pool: 'bad name/ü' is no name of a work pool"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused_and_not_written(home, changed: tuple[str, ...], says: str):
    code, said = home.knockout(*ADD, *changed)
    assert (code, says in said, "Traceback" in said) == (2, True, False), said
    assert not (home.folder / "schedules.json").exists()


def test_a_schedule_is_listed_with_its_pool_in_its_zone_beside_one_that_never_comes(home):
    code, said = home.knockout(*ADD, "--timezone", "Europe/Berlin", "--studies", "smal?", "--pool", "gpus", "--size", "pico")
    assert code == 0, said
    assert "due next" in said
    assert " 02:00 CE" in said
    kept = home.folder / "schedules.json"
    data = json.loads(kept.read_text())
    never = {**data["added"]["n1"]["schedule"], "schedule": "n2", "cron": "0 2 30 2 *"}
    data["added"]["n2"] = {**data["added"]["n1"], "schedule": never}
    kept.write_text(json.dumps(data))
    code, said = home.knockout("schedule", "list")
    assert code == 0, said
    assert "n2 never runs: cron: '0 2 30 2 *' never comes: February has no 30th" in said
    assert "gpus" in said
    assert home.knockout("schedule", "remove", "n2")[0] == 0
    assert [*json.loads(kept.read_text())["added"]] == ["n1"]


@pytest.mark.parametrize("pool", ["bad name/ü", ""])
def test_a_pool_that_no_server_can_have_is_refused_in_one_sentence(home, pool: str):
    code, said = home.knockout("submit", "small", "--pool", pool)
    assert (code, len(said.splitlines())) == (2, 1), said
    assert f"--pool: '{pool}' is no name of a work pool" in said
    assert not (home.folder / "submissions").exists()
