"""Losses against their formulas, written out answer by answer."""

from __future__ import annotations

import math

import pytest
import torch

from knockout.declare.recipe import CrossEntropy, HardMargin
from knockout.training.loss import losses

LOGITS = [[2.0, -1.0, 0.5, 0.0], [0.1, 0.2, 0.3, -4.0], [5.0, 1.0, 4.5, 0.0]]
ANSWERS = [0, 3, 2]


def given():
    logits_NV = torch.tensor(LOGITS, dtype=torch.float64, requires_grad=True)
    return logits_NV, torch.tensor(ANSWERS)


def nats() -> float:
    return sum(math.log(sum(map(math.exp, row))) - row[y] for row, y in zip(LOGITS, ANSWERS, strict=True)) / 3


def test_cross_entropy_is_minus_the_log_of_the_right_tokens_probability():
    logits_NV, answers_N = given()
    found = losses(CrossEntropy(), logits_NV=logits_NV, answers_N=answers_N)
    assert found.nats.item() == found.minimised.item() == pytest.approx(nats(), rel=1e-12)


def test_z_loss_adds_the_squared_log_of_the_normaliser():
    """PaLM, section 5: 1e-4 * log(Z)^2."""
    logits_NV, answers_N = given()
    found = losses(CrossEntropy(z_loss=1e-4), logits_NV=logits_NV, answers_N=answers_N)
    z = sum(math.log(sum(map(math.exp, row))) ** 2 for row in LOGITS) / 3
    assert found.minimised.item() == pytest.approx(nats() + 1e-4 * z, rel=1e-12)
    assert found.nats.item() == pytest.approx(nats(), rel=1e-12)


@pytest.mark.parametrize("margin", [1.0, 0.25])
def test_hard_margin_is_crammer_and_singers(margin: float):
    """max over r of (s_r + margin [r != y]) - s_y, which is 0 once the right one leads by the margin."""
    logits_NV, answers_N = given()
    found = losses(HardMargin(margin=margin), logits_NV=logits_NV, answers_N=answers_N)
    each = [
        max(s + (margin if r != y else 0.0) for r, s in enumerate(row)) - row[y]
        for row, y in zip(LOGITS, ANSWERS, strict=True)
    ]
    assert each[0] == 0.0
    assert found.minimised.item() == pytest.approx(sum(each) / 3, rel=1e-12)
    assert found.nats.item() == pytest.approx(nats(), rel=1e-12)


def test_hard_margin_moves_only_the_right_logit_and_its_best_rival():
    logits_NV, answers_N = given()
    losses(HardMargin(), logits_NV=logits_NV, answers_N=answers_N).minimised.backward()
    assert logits_NV.grad is not None
    expected = [[0, 0, 0, 0], [0, 0, 1, -1], [1, 0, -1, 0]]
    assert torch.equal(logits_NV.grad * 3, torch.tensor(expected, dtype=torch.float64))
