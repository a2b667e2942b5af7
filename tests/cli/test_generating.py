"""`knockout generate`: which run, and how tokens are chosen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from knockout.cli.app import app
from knockout.cli.generating import find_run
from knockout.errors import InputError
from knockout.ledger.process import this_process
from knockout.ledger.store import Ledger
from knockout.ledger.workspace import open_workspace


def refusal(*arguments: str, workspace: Path) -> str:
    result = CliRunner().invoke(app, ["generate", *arguments, "--workspace", str(workspace)])
    assert isinstance(result.exception, InputError)
    return str(result.exception)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--greedy", "--top-k", "3"], "exclude each other"),
        (["--top-p", "0.5", "--top-k", "3"], "exclude each other"),
        (["--greedy", "--temperature", "0.5"], "takes no --temperature"),
        (["--temperature", "0"], "--temperature 0.0: should be greater than 0"),
        (["--top-p", "1.5"], "--top-p 1.5: should be less than or equal to 1"),
        (["--top-k", "0"], "--top-k 0: should be greater than or equal to 1"),
    ],
)
def test_choices_that_mean_nothing_are_refused_in_one_line(options: list[str], reason: str, tmp_path: Path) -> None:
    assert reason in refusal("abc", *options, workspace=tmp_path)


@pytest.mark.parametrize("option", [["--seed", "9" * 23], ["--tokens", "9" * 15], ["--seed", "-1"]])
def test_numbers_out_of_range_are_refused_with_the_range(option: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["generate", "abc", *option, "--workspace", str(tmp_path)])
    assert result.exit_code == 2
    assert "than or equal to" in result.stderr


def test_an_unknown_run_is_named(tmp_path: Path) -> None:
    assert refusal("abc", workspace=tmp_path) == "no run begins with 'abc'"


def test_an_unknown_variant_is_named(tmp_path: Path) -> None:
    assert "no finished run of variant 'baseline' of study 'residual'" in refusal("residual:baseline", workspace=tmp_path)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = Ledger(open_workspace(tmp_path))
    yield opened
    opened.close()


def submit(ledger: Ledger, submission: str, *, finished: tuple[str, ...], seeds: dict[str, int]) -> None:
    me, common = this_process(), {"meaning": {}, "planned_steps": 1, "flops": 1.0, "size": "pico", "role": "judged"}
    runs = [{"identity": name, "variant": "baseline", "seed": seed, **common} for name, seed in seeds.items()]
    ledger.submit(submission, study="residual", plan="", owner=me, runs=runs)
    for name in finished:
        ledger.claim(name, owner=me)
        ledger.finish(name, owner=me, state="done", reason=None, step=1, seconds=1.0, metrics={})


def test_a_variant_is_its_finished_run_of_the_lowest_seed_in_the_newest_submission(ledger: Ledger) -> None:
    submit(ledger, "old", finished=("aa",), seeds={"aa": 0})
    submit(ledger, "new", finished=("cc", "dd"), seeds={"bb": 0, "dd": 2, "cc": 1})
    assert find_run("residual:baseline", ledger=ledger) == "cc"


def test_a_variant_that_the_newest_submission_has_not_finished_is_looked_for_in_older_ones(ledger: Ledger) -> None:
    submit(ledger, "old", finished=("aa",), seeds={"aa": 0})
    submit(ledger, "new", finished=(), seeds={"bb": 0})
    assert find_run("residual:baseline", ledger=ledger) == "aa"


def test_the_start_of_an_identity_is_enough(ledger: Ledger) -> None:
    submit(ledger, "old", finished=(), seeds={"abc": 0, "abd": 1})
    assert find_run("abc", ledger=ledger) == "abc"
    with pytest.raises(InputError, match="more than one run begins with 'ab'"):
        find_run("ab", ledger=ledger)
