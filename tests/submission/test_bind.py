"""What a prepared corpus must hold for a run to read it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from knockout.account.matching import plan_study
from knockout.corpus.prepare import Prepared
from knockout.corpus.prepare import prepare as prepare_corpus
from knockout.corpus.preparing.workers import Here
from knockout.declare.corpus import Bytes, Corpus, Evaluation
from knockout.declare.load import load_study
from knockout.declare.plan import PlannedRun
from knockout.declare.text_sources import Files
from knockout.errors import CorpusError
from knockout.submission.bind import bind_run

STUDY = "study: trial\nquestion: Is there room?\ncorpus: python-source\nsize: pico\nseeds: 1\n"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """20 documents of about 1,000 bytes, half of them for the exam."""
    folder = tmp_path_factory.mktemp("corpus")
    for number in range(20):
        (folder / f"{number}.txt").write_text(f"{number} " * 400)
    corpus = Corpus(
        corpus="few",
        source=Files(paths=("*.txt",)),
        tokenizer=Bytes(),
        validation=0.5,
        evaluation=Evaluation(tokens=1024, segments=4),
    )
    return prepare_corpus(corpus, vocabulary=257, folder=folder / "corpora", base=folder, workers=Here())


def run_of(context: int, *, folder: Path) -> PlannedRun:
    path = folder / "study.yaml"
    path.write_text(STUDY)
    run = plan_study(load_study(path)).runs[0]
    architecture = run.cell.architecture.model_copy(update={"context": context})
    return replace(run, cell=replace(run.cell, architecture=architecture))


def test_a_window_that_a_segment_of_the_exam_is_too_short_for_is_refused(prepared: Prepared, tmp_path: Path):
    assert bind_run(run_of(256, folder=tmp_path), prepared=prepared).meaning["evaluation"]["window"] == 256
    with pytest.raises(CorpusError, match="exam of corpus few has 4 segments of 256 tokens each, in which a window of 257"):
        bind_run(run_of(257, folder=tmp_path), prepared=prepared)


def test_a_window_that_the_text_is_too_short_for_is_told_with_what_is_there(prepared: Prepared, tmp_path: Path):
    splits = prepared.manifest.splits
    train = splits.train.model_copy(update={"tokens": 200})
    short = prepared.manifest.model_copy(update={"splits": splits.model_copy(update={"train": train})})
    with pytest.raises(CorpusError, match="a window of 256 tokens does not fit the corpus few, whose train split has 200"):
        bind_run(run_of(256, folder=tmp_path), prepared=replace(prepared, manifest=short))
