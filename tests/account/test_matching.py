"""Matching: the nearest legal value, the error that remains, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from knockout.account import count
from knockout.account.matching import plan_study
from knockout.declare.expand import Plan
from knockout.declare.load import load_study
from knockout.errors import DeclarationError

STUDY = """\
study: trial
question: Does it matter?
corpus: python-source
size: nano
baseline: {{{baseline}}}
variants:
  other: {{{variant}}}
match: {{on: {on}, free: {free}, tolerance: {tolerance}}}
seeds: 1
"""


def plan_of(tmp_path: Path, **settings: object) -> Plan:
    path = tmp_path / "study.yaml"
    path.write_text(STUDY.format(**{"baseline": "", "tolerance": 0.01, **settings}))
    return plan_study(load_study(path))


def total(plan: Plan, index: int) -> int:
    return count(plan.cells[index].architecture).parameters.total


def test_a_gated_variant_gets_the_hidden_width_of_equal_parameters(tmp_path: Path):
    plan = plan_of(tmp_path, variant="ffn: {kind: swiglu}", on="parameters", free="ffn.hidden")
    # by hand, width 128, biases: 2·128·512 + 512 + 128 a block = 3·128·h + 2·h + 128, so h = 131,584 / 386 = 340.9
    hidden = plan.cells[1].architecture.ffn.hidden  # type: ignore[union-attr]
    assert hidden == 344
    matched = plan.cells[1].matched
    assert matched is not None
    assert matched.error == pytest.approx(total(plan, 1) / total(plan, 0) - 1)
    assert abs(matched.error) < 0.01


def test_a_shallower_variant_grows_wide_with_its_feed_forward(tmp_path: Path):
    plan = plan_of(tmp_path, variant="depth: 2", on="non_embedding_parameters", free="width", tolerance=0.05)
    architecture = plan.cells[1].architecture
    assert architecture.width % (2 * architecture.heads) == 0
    assert architecture.ffn.hidden == 4 * architecture.width  # type: ignore[union-attr]
    # a block holds about 12 width², so half the depth takes about √2 × the width: 181, and steps are 8
    assert architecture.width == 184


def test_compute_is_matched_by_tokens_exactly_to_a_step(tmp_path: Path):
    plan = plan_of(tmp_path, variant="depth: 8", on="compute", free="tokens")
    base, deep = (count(cell.architecture).flops_per_token.training * cell.num_steps for cell in plan.cells)
    step = count(plan.cells[1].architecture).flops_per_token.training
    assert abs(deep - base) <= step / 2


def test_what_cannot_be_matched_is_refused_with_the_nearest_solutions(tmp_path: Path):
    with pytest.raises(DeclarationError) as caught:
        plan_of(tmp_path, variant="width: 32, heads: 4", on="parameters", free="depth", tolerance=0.001)
    problem = caught.value.problems[0]
    assert (problem.line, problem.path) == (8, "match")
    assert "cannot be matched within 0.10%" in problem.message
    assert "depth" in problem.message


def test_a_free_dimension_that_the_variant_lacks_is_refused(tmp_path: Path):
    with pytest.raises(DeclarationError, match=r"no value of ffn.hidden is legal"):
        plan_of(tmp_path, variant="ffn: {kind: none}", on="parameters", free="ffn.hidden")
