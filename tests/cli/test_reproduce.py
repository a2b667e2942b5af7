"""`knockout reproduce`, as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from knockout.cli.app import app
from knockout.project import root

MAIN = "from knockout.cli import main; main()"
FILE = """subject: mine
claims:
  - id: M1
    document: mine
    section: "1"
    says: A head of gpt2 is 64 wide
    expect: {is: count, preset: gpt2, quantity: heads.width, value: VALUE}
"""


def test_all_claims_are_decided_in_under_a_minute_and_printed_as_data(tmp_path: Path) -> None:
    before = os.times()
    command = [sys.executable, "-c", MAIN, "reproduce", "--kind", "count", "--kind", "identity", "--json"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    after = os.times()
    assert after.children_user + after.children_system - before.children_user - before.children_system < 60
    rows = json.loads(ran.stdout)
    assert len(rows) > 100
    assert len({row["id"] for row in rows}) == len(rows)
    assert {row["verdict"] for row in rows} == {"supported", "refuted"}
    keys = {"id", "kind", "document", "section", "says", "verdict", "stated", "computed", "detail"}
    assert all(set(row) == keys and row["detail"] for row in rows)


def test_text_shows_statement_verdict_both_values_and_why() -> None:
    ran = CliRunner().invoke(app, ["reproduce", "--only", "T7.2-norm-sum", "--only", "T6.6-worked"])
    assert ran.exit_code == 0
    for said in (
        "T7.2-norm-sum refuted (T 7.2): 96 × 49,152 + 24,576 is 4,968,192",
        "document: 4,968,192; computed: 4,743,168",
    ):
        assert said in ran.stdout
    assert "225,024" in ran.stdout
    assert "document: [0.675, 0.325, 0]; computed: [0.6698, 0.3302, 0]" in ran.stdout
    assert ran.stdout.endswith("23 claims: 18 supported, 5 refuted\nT = 如何通俗理解 Transformer 架构\n")


def test_the_documents_are_named_in_one_line() -> None:
    ran = CliRunner().invoke(app, ["reproduce", "--only", "L2.3-tied", "--only", "T4.2-flat"])
    last = ran.stdout.splitlines()[-1]
    assert last == "T = 如何通俗理解 Transformer 架构; L = 原理篇 —— Transformer 与 LLM 的工作底座"


def test_counts_need_no_torch(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom typer.testing import CliRunner\nfrom knockout.cli.app import app\n"
        "ran = CliRunner().invoke(app, ['reproduce', '--kind', 'count'])\nsys.exit(ran.exit_code or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=False).returncode == 0


@pytest.mark.parametrize(("value", "verdict"), [("64", "supported"), ("65", "refuted")])
def test_a_projects_own_claims_are_decided_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, verdict: str
) -> None:
    (tmp_path / "ablations" / "claims").mkdir(parents=True)
    (tmp_path / "ablations" / "claims" / "mine.yaml").write_text(FILE.replace("VALUE", value))
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(app, ["reproduce", "--only", "M1", "--json"])
    assert [row["verdict"] for row in json.loads(ran.stdout)] == [verdict]


@pytest.fixture
def told(tell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As `tell`, in a folder with nothing in it."""
    monkeypatch.chdir(tmp_path)
    return tell


def test_check_checks_a_claims_file(told, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(FILE.replace("VALUE", "64"))
    (tmp_path / "bad.yaml").write_text(FILE.replace("heads.width", "heads.wdth"))
    code, said, wrong = told("check", "./mine.yaml", str(root() / "ablations" / "claims" / "counts-gpt3.yaml"))
    assert (code, wrong) == (0, "")
    assert said.startswith("./mine.yaml: ok: 1 claim that calculation decides\n")
    code, _, wrong = told("check", "bad.yaml")
    assert code == 2
    assert wrong.startswith("bad.yaml:7:")


def test_a_claims_file_is_no_study(told) -> None:
    code, _, wrong = told("check", "counts-gpt3")
    assert (code, "no study 'counts-gpt3'" in wrong) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "T6.6-wrked"], "did you mean 'T6.6-worked'"),
        (["--only", "T6.6-worked", "--kind", "count"], "none of these claims is a count"),
        (["--only", "T3.2-ffn", "--kind", "identity"], "none of these claims is an identity"),
        (["--kind", "counts"], "count"),
        (["--pool", "gpus"], "--pool has studies trained, which only `--kind train` starts: give both"),
        (["--kind", "train", "--pool", "no/pool"], "--pool: 'no/pool' is no name of a work pool"),
        (["--kind", "train", "--pool", "gpus", "--slots", "2"], "the workers of a pool have their own slots"),
    ],
)
def test_wrong_input_is_said_without_a_traceback(told, arguments: list[str], said: str) -> None:
    code, _, wrong = told("reproduce", *arguments)
    assert code == 2
    assert said in wrong
    assert "Traceback" not in wrong


def test_a_broken_file_is_reported_at_its_line(told, tmp_path: Path) -> None:
    (tmp_path / "ablations" / "claims").mkdir(parents=True)
    (tmp_path / "ablations" / "claims" / "mine.yaml").write_text(FILE.replace("heads.width", "heads.wdth"))
    code, _, wrong = told("reproduce")
    assert code == 2
    assert "ablations/claims/mine.yaml:7:" in wrong
    assert "Traceback" not in wrong
