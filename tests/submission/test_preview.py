"""What plans say that there is to do: runs and searches that several studies share are done once."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import TINY, write_files

from knockout.account.matching import plan_study
from knockout.corpus.prepare import prepare
from knockout.corpus.preparing.workers import Here
from knockout.declare.load import find_study, load_study
from knockout.ledger.workspace import Workspace, open_workspace
from knockout.submission.preview import Preview, preview

STUDY = """study: {name}
question: Does it learn a chain?
corpus: tiny
size: pico
baseline: {{width: 16, heads: 2, depth: 2, context: 16, vocabulary: 32, batch: 4, tokens: 6400, learning_rate: 0.005}}
variants:
  {variant}
seeds: 3
controls: {{aa: false}}
competence: {{floor: none}}
{tune}"""
TUNE = "tune: {learning_rate: {low: 1.0e-3, high: 1.0e-1}, trials: 5}\n"
NO_NORM, DEEP = "no-norm: {norm: {kind: none}}", "deep: {depth: 3}"
TWINS = f"{NO_NORM}\n  again: {{norm: {{kind: none}}}}"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """Of a project whose corpus is prepared."""
    studies = {
        "norms": (NO_NORM, TUNE), "depths": (DEEP, TUNE), "both": (f"{NO_NORM}\n  {DEEP}", TUNE), "untuned": (NO_NORM, ""),
        "twins": (TWINS, TUNE),
    }  # fmt: skip
    texts = {name: STUDY.format(name=name, variant=variant, tune=tune) for name, (variant, tune) in studies.items()}
    project = write_files(
        tmp_path / "project",
        files={"data/tiny.yaml": TINY, **{f"ablations/{name}.yaml": text for name, text in texts.items()}},
    )
    monkeypatch.chdir(project)
    opened = open_workspace(tmp_path / "home")
    loaded = load_study(find_study("norms"))
    corpus = plan_study(loaded).corpus
    prepare(corpus, vocabulary=32, folder=opened.corpora, base=loaded.corpus_base, workers=Here())
    return opened


def plans(workspace: Workspace, *names: str) -> list[Preview]:
    """Those of studies that follow one another."""
    before = set[str]()
    loaded = [load_study(find_study(name)) for name in names]
    return [preview(plan_study(one), base=one.corpus_base, workspace=workspace, before=before) for one in loaded]


def todo(*previews: Preview) -> list[tuple[int, int]]:
    """Runs, and how many of them are trials."""
    return [(one.runs_to_do, one.trials_to_do) for one in previews]


def test_what_studies_share_is_done_by_the_first_of_them(workspace: Workspace):
    norms, depths, both = plans(workspace, "norms", "depths", "both")
    assert todo(norms, depths, both) == [(16, 10), (8, 5), (0, 0)], "6 judged runs and 10 trials; then a variant's alone"
    assert todo(*plans(workspace, "depths")) == [(16, 10)]
    assert both.duration.seconds == 0.0
    assert depths.duration.core_seconds < plans(workspace, "depths")[0].duration.core_seconds


def test_a_run_at_the_declared_setting_does_not_stand_for_what_a_search_will_choose(workspace: Workspace):
    assert todo(*plans(workspace, "untuned", "norms")) == [(6, 0), (16, 10)]
    assert todo(*plans(workspace, "norms", "untuned")) == [(16, 10), (6, 0)]


def test_variants_that_are_one_model_are_searched_and_trained_once(workspace: Workspace):
    assert todo(*plans(workspace, "twins")) == todo(*plans(workspace, "norms"))
