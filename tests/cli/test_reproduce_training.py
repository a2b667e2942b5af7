"""`knockout reproduce --kind train` and `knockout results`, as a user runs them: real studies in real processes."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator

import pytest

from knockout.cli.training_claims import Execution
from knockout.submission.revision import revision

QUIET = ("--no-prefect", "--no-mlflow")
TRAIN = ("reproduce", "--kind", "train", *QUIET)
GONE = """corpus: gone
source: {kind: files, paths: [nowhere/*.txt], format: text}
tokenizer: {kind: bytes}
validation: 0.1
evaluation: {tokens: 256, segments: 8}
"""


@pytest.fixture(scope="module")
def home(shared_home, tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    """A project of its own: a study that has text, one whose text is gone, and one that cannot be read."""
    folder, written = tmp_path_factory.mktemp("reproducing"), shared_home.project
    study = (written / "ablations" / "small.yaml").read_text()
    two = (
        study.replace("seeds: 1", "seeds: 2\ncontrols: {aa: false}")
        .replace("- id: one", "- id: T9-one\n    source: A. Paper 2024, against it")
        .replace("is: causal", "is: worse, than: baseline, by: 0.01")
    )
    for name, text in {
        "data/tiny.yaml": (written / "data" / "tiny.yaml").read_text(),
        "data/gone.yaml": GONE,
        "ablations/textless.yaml": two.replace("study: small", "study: textless")
        .replace("corpus: tiny", "corpus: gone")
        .replace("vocabulary: 32", "vocabulary: 512"),
        "ablations/unread.yaml": two.replace("study: small", "study: unread").replace("seeds:", "seads:"),
        "ablations/works.yaml": two.replace("study: small", "study: works"),
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    shared_home.project = folder
    yield shared_home
    shared_home.project = written


@pytest.fixture(scope="module")
def first(home) -> tuple[int, str]:
    """Everything of the project once, from nothing."""
    return home.knockout(*TRAIN, "--only", "unread", "--only", "textless", "--only", "works")


def test_one_study_that_is_refused_stops_no_other_and_the_exit_code_says_so(first):
    code, said = first
    assert code == 1, said
    assert "Traceback" not in said
    assert "[1 of 2] textless" in said
    assert "[2 of 2] works" in said
    assert re.search(r"^unread: refused: ablations/unread\.yaml:\d+:1: seads: unknown key", said, re.MULTILINE)
    assert "textless: refused, as said above (exit code 2)" in said
    table = said[said.index("claim   study") :]
    assert re.search(r"T9-one +textless +pico +not run ", table)
    assert re.search(r"T9-one +works +pico +(supported|refuted|inconclusive) +[+−]\d", table)
    assert "2 training claims: " in table
    assert "; 4 runs, " in table


def test_a_second_time_trains_nothing_and_says_the_same_as_data(home, first):
    code, said = home.here(*TRAIN, "--only", "T9-one", "--dry-run")
    assert code == 1, said
    assert re.search(r"works +4 +0 ", said)
    assert "textless: refused: corpus gone: source.paths: no text files match 'nowhere/*.txt'" in said
    code, said = home.knockout(*TRAIN, "--only", "works", "--json", code=SPLIT)
    assert code == 0, said
    (row,) = json.loads(said)
    (verdict,) = home.facts("works")["verdicts"]
    assert (row["id"], row["kind"], row["study"], row["size"], row["verdict"]) == (
        "T9-one", "train", "works", "pico", verdict["outcome"],
    )  # fmt: skip
    assert (row["effect"], row["interval"], row["seeds"]) == (verdict["effect"], verdict["interval"], 2)
    assert [(run.state, run.attempts) for run in home.runs()] == [("done", 1)] * 4


SPLIT = """if True:
    import os, sys
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    from knockout.cli import main
    main()"""
"""Standard output alone: what else is said of the work must not be in it."""


def test_without_the_kind_nothing_is_trained_and_what_is_missing_has_its_command(home, first):
    before = home.submission_states()
    code, said = home.here("reproduce", "--only", "T9-one", "--only", "causal-mask", "--size", "pico")
    assert code == 0, said
    assert re.search(r"T6\.4-peek +causal-mask +pico +not run ", said)
    assert "knockout reproduce --kind train --only causal-mask --size pico" in said
    assert re.search(r"T9-one +works +pico +(supported|refuted|inconclusive)", said)
    assert home.submission_states() == before


def test_a_verdict_of_a_study_that_has_changed_since_does_not_count(home, first):
    path = home.project / "ablations" / "works.yaml"
    before = path.read_text()
    try:
        path.write_text(f"# a comment is no change\n{before}")
        assert "not run" not in home.here("reproduce", "--only", "works")[1]
        path.write_text(before.replace("by: 0.01", "by: 0.02"))
        code, said = home.here("reproduce", "--only", "works")
    finally:
        path.write_text(before)
    assert code == 0, said
    assert "not run" in said
    assert re.search(r"the study has changed since its verdict of \d{4}-\d\d-\d\d; run it with", said)


def test_results_are_logged_from_the_ledger_and_a_second_time_changes_nothing(home, first):
    log = home.project / "ablations" / "RESULTS.md"
    code, said = home.here("results", "--write")
    assert (code, said) == (0, "ablations/RESULTS.md: 1 section written\n")
    text = log.read_text()
    (verdict,) = home.facts("works")["verdicts"]
    assert f"| `T9-one` | **{verdict['outcome']}** |" in text
    assert "A. Paper 2024, against it |" in text
    assert verdict["reason"] in text
    assert "4 runs, " in text
    assert "- Again: `knockout run works`" in text
    assert str(home.folder) not in text
    assert str(home.project) not in text
    code, said = home.here("results", "works")
    assert code == 0
    assert said in text
    mark, row = "\n<!-- knockout results · works · pico · 2020-01-01 -->\n## an older day", "| `T9-one` | **not run** |\n"
    log.write_text(f"{text}{mark}\n\n{row}")
    for _ in range(2):
        assert home.here("results", "--write")[0] == 0
        newest, older = log.read_text().split(mark)
        assert re.fullmatch(r" \(superseded by \d{4}-\d\d-\d\d\)\n\n" + re.escape(row), older)
        since = f"Since 2020-01-01: `T9-one` not run → {verdict['outcome']}; declaration not recorded then, now `"
        assert since in newest
        assert re.sub(r"Since .*\n\n", "", newest) == text


def test_results_name_the_revision_that_the_command_ran_with_and_no_run_is_made_by_it(home, first):
    facts = home.facts("works")
    assert facts["revision"] == revision()
    assert f"- Revision: `{facts['revision']}`" in home.here("results", "works")[1]
    assert all("revision" not in json.dumps(run.meaning) for run in home.runs())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("reproduce", "--only", "T9-two"), "no claim or study 'T9-two' in ablations/; did you mean 'T9-one'?"),
        (("reproduce", "--only", "works", "--kind", "count"), "none of these claims is a count"),
        (("reproduce", "--dry-run"), "--dry-run shows what `--kind train` would run: give both"),
        (("reproduce", "--size", "pica"), "no size 'pica'"),
        (("results", "causal-mask"), "no verdicts of causal-mask in "),
        (("results", "wrks"), "did you mean 'works'?"),
    ],
)
def test_wrong_input_is_said_without_a_traceback(home, first, arguments: tuple[str, ...], said: str):
    code, found = home.here(*arguments)
    assert code == 2
    assert said in found
    assert "Traceback" not in found


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_stopped_or_killed_nothing_of_it_lives_on(home, first, until, number: int, code: int):
    path = home.project / "ablations" / f"long-{number}.yaml"
    study = (home.project / "ablations" / "works.yaml").read_text()
    study = study.replace("study: works", f"study: {path.stem}")
    path.write_text(study.replace("tokens: 6400", f"tokens: {64 * (800 + number)}"))  # some seconds a run
    steps = home.newest_step()
    process = home.start(*TRAIN, "--only", path.stem)
    until(lambda: home.newest_step() > steps or process.poll() is not None)
    os.kill(process.pid, number)
    found, said = home.finish(process)
    path.unlink()
    assert found == code, said
    assert "Traceback" not in said
    until(lambda: home.alive() == {}, seconds=15)
    assert home.submission_states()[-1] == "cancelled"


def test_limits_reach_the_command_of_each_study():
    execution = Execution(
        settle=True, slots=2, run_seconds=None, study_seconds=60.0, prefect=False, mlflow=True, workspace=None
    )
    assert execution.arguments == ["--no-prefect", "--slots", "2", "--study-seconds", "60.0"]
