"""Wrong input and a workspace that gives out: one clear message, the right exit code, nothing lost."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

LIMITED = """if True:
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, resource.RLIM_INFINITY))
    from knockout.cli import main
    main()"""


@pytest.fixture
def inside(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project folder as the current one, and a workspace of its own."""
    monkeypatch.chdir(project)
    monkeypatch.setenv("KNOCKOUT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")
    return project


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("plan", "smal"), "no study 'smal' in ablations/"),
        (("plan", "smal"), "did you mean 'small'?"),
        (("plan", "ablations/"), "no study 'ablations/'"),
        (("check", "absent.yaml"), "absent.yaml: no such file"),
        (("check",), "Missing argument"),
        (("plan", "small", "--set", "depth"), "write it as path=value"),
        (("plan", "small", "--set", "depht=3"), "did you mean 'depth'?"),
        (("plan", "small", "--set", "depth=deep"), "'deep' should be a valid integer"),
        (("plan", "small", "--set", "accumulate=3"), "must divide batch = 4"),
        (("plan", "small", "--size", "huge"), "no size 'huge'"),
        (("plan", "small", "--seeds", "0"), "greater than or equal to 1"),
        (("report", "small"), "run it first with `knockout run small`"),
        (("report", "smal"), "did you mean 'small'?"),
        (("why", "abc"), "no run begins with 'abc'"),
        (("params", "picoo"), "did you mean 'pico'?"),
        (("params", "small:nothing"), "small has no variant 'nothing'"),
        (("schema", "-o", "/proc/absent/x"), "/proc/absent/x cannot be written: No such file or directory"),
        (("plann", "small"), "No such command"),
    ],
)
def test_mistakes_on_the_command_line_are_told_in_a_sentence(inside, tell, arguments, message):
    code, said, wrong = tell(*arguments)
    assert (code, message in said + wrong) == (2, True), said + wrong


def test_every_problem_of_every_file_is_told_with_its_line(inside, tmp_path, tell):
    broken, wrong = tmp_path / "broken.yaml", tmp_path / "wrong.yaml"
    broken.write_text("study: [\n")
    wrong.write_text(
        "study: wrong\nquestion: q\ncorpus: absent\nsize: pico\nbaseline:\n  heads: 3\nseedz: 2\n"
        "variants:\n  one: {residual: {kind: nothing}}\n"
    )
    code, *both = tell("check", str(broken), "small", str(wrong))
    said = "".join(both)
    assert code == 2
    assert "small: ok: 2 cells, 2 runs, 1 claim" in said
    assert f"{broken}:" in said
    assert f"{wrong}:7:" in said
    assert "did you mean 'seeds'?" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "words.txt"),
        (b"", "no text is left"),
        (b"good\n\xff\xfe bad\n", "UTF-8"),
    ],
    ids=["missing", "empty", "not-utf8"],
)
def test_a_corpus_that_cannot_be_prepared_is_the_users_to_mend(home, tmp_path, content, message):
    folder = tmp_path / "mine"
    (folder / "data").mkdir(parents=True)
    (folder / "ablations").mkdir()
    (folder / "data" / "text.yaml").write_text(
        "corpus: text\nsource: {kind: files, paths: [words.txt]}\ntokenizer: {kind: bytes}\n"
    )
    study = (home.project / "ablations" / "small.yaml").read_text()
    (folder / "ablations" / "small.yaml").write_text(
        study.replace("corpus: tiny", "corpus: text").replace("vocabulary: 32", "vocabulary: 257")
    )
    if content is not None:
        (folder / "data" / "words.txt").write_bytes(content)
    home.project = folder
    code, said = home.run("small")
    assert code == 2, said
    assert message in said
    assert "Traceback" not in said
    assert home.alive() == {}


def test_a_workspace_that_is_a_file_is_refused(home):
    home.folder.write_text("a file")
    code, said = home.run("small")
    assert code == 2
    assert f"{home.folder} stands where the workspace has a folder" in said
    assert "Traceback" not in said


def test_a_ledger_that_cannot_be_written_is_told(home):
    code, said = home.run("small", code=LIMITED.format(limit=20_000))
    assert code == 2, said
    assert said == f"the ledger {home.folder}/ledger.db cannot be opened: disk I/O error\n"


def test_a_checkpoint_that_cannot_be_written_fails_the_run_and_loses_nothing(home):
    code, said = home.run("small", code=LIMITED.format(limit=160_000))
    assert code in (1, 2), said
    assert "cannot be written" in said
    assert "Traceback" not in said
    assert home.alive() == {}
    code, said = home.run("small")
    assert code == 0, said
    assert {run.state for run in home.runs()} == {"done"}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own with little room."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "none", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting needs rights that this user has not")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_is_told_and_with_room_again_the_same_command_finishes(home, small_disk: Path):
    home.folder = small_disk / "home"
    code, said = home.run("small")
    assert code in (1, 2), said
    assert "cannot be written" in said
    assert "Traceback" not in said
    subprocess.run(["mount", "-o", "remount,size=50m", str(small_disk)], check=True)
    code, said = home.run("small")
    assert code == 0, said
    assert {run.state for run in home.runs()} == {"done"}
