"""Runs whose tokens stand in a random order, beside runs on the text itself."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import torch

from knockout.corpus.reading import open_split
from knockout.training.evaluation import Exam
from knockout.training.spec import RESULT

LONG = {"tokens": 9_600, "dropout": 0.0, "accumulate": 1, "evaluations": 1}
"""150 steps."""


@pytest.mark.parametrize("context", [16, 12])
def test_the_shuffled_exam_has_the_same_answers_in_another_order(laboratory, context: int):
    split = open_split(laboratory.corpus.folder, split="validation")
    plain, mixed = (Exam.of(split, context=context, device="cpu", shuffled=shuffled) for shuffled in (False, True))
    again = Exam.of(split, context=context, device="cpu", shuffled=True)
    for plain_BW, mixed_BW, again_BW in zip(plain.windows_BW, mixed.windows_BW, again.windows_BW, strict=True):
        assert Counter(plain_BW[:, 1:].flatten().tolist()) == Counter(mixed_BW[:, 1:].flatten().tolist())
        assert (plain_BW[:, 1:] != mixed_BW[:, 1:]).float().mean() > 0.5
        assert torch.equal(plain_BW[:, 0], mixed_BW[:, 0])
        assert torch.equal(mixed_BW, again_BW)


def test_only_tokens_in_their_own_order_teach_more_than_their_frequencies(laboratory, tmp_path: Path):
    runs = {shuffled: laboratory.declare(tmp_path, shuffle_tokens=shuffled, **LONG) for shuffled in (False, True)}
    losses: dict[bool, float] = {}
    for shuffled, run in runs.items():
        assert laboratory.train(run) == 0
        losses[shuffled] = json.loads((run.folder / RESULT).read_text())["metrics"]["val_loss"]
    unigram = laboratory.corpus.manifest.floors.unigram
    assert runs[True].identity != runs[False].identity
    assert losses[False] < unigram - 0.3
    assert unigram - 0.03 < losses[True] < unigram + 0.1
