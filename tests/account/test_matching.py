"""Matching: the nearest legal value, the error that remains, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from knockout.account import count
from knockout.account.matching import plan_study
from knockout.declare.load import load_study
from knockout.declare.plan import Plan
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


RULES = """\
study: trial
question: Does it matter?
corpus: python-source
size: pico
variants:
  gated: {{ffn: {{kind: swiglu}}}}
  shallow: {{depth: 1}}
  free: {{depth: 3}}
match:
{rules}
seeds: 1
"""


def plan_with(tmp_path: Path, *rules: str) -> Plan:
    path = tmp_path / "study.yaml"
    path.write_text(RULES.format(rules="\n".join(f"  - {{{rule}}}" for rule in rules)))
    return plan_study(load_study(path))


def test_each_rule_matches_the_variants_that_it_names_and_no_other(tmp_path: Path):
    hidden, width = "on: parameters, free: ffn.hidden", "on: non_embedding_parameters, free: width, tolerance: 0.2"
    plan = plan_with(tmp_path, f"{hidden}, variants: [gated]", f"{width}, variants: [shallow]")
    solved = {cell.variant: cell.matched.free if cell.matched else None for cell in plan.cells}
    assert solved == {"baseline": None, "gated": "ffn.hidden", "shallow": "width", "free": None}


def test_a_rule_without_names_is_for_all_that_no_other_names(tmp_path: Path):
    hidden, width = "on: parameters, free: ffn.hidden", "on: non_embedding_parameters, free: width, tolerance: 0.2"
    plan = plan_with(tmp_path, width, f"{hidden}, variants: [gated]")
    solved = {cell.variant: cell.matched.free for cell in plan.cells if cell.matched}
    assert solved == {"gated": "ffn.hidden", "shallow": "width", "free": "width"}


def test_a_finer_step_comes_nearer(tmp_path: Path):
    rule = "on: parameters, free: width, variants: [free], tolerance: 0.2"
    coarse, fine = (plan_with(tmp_path, f"{rule}{step}").cells[3].matched for step in ("", ", step: 2"))
    assert coarse is not None
    assert fine is not None
    assert coarse.solution % 8 == 0
    assert fine.solution % 2 == 0
    assert abs(fine.error) < abs(coarse.error), (fine, coarse)


def test_rules_that_name_a_variant_twice_or_not_at_all_are_refused_at_their_line(tmp_path: Path):
    rule = "on: parameters, free: ffn.hidden, variants: [gated]"
    with pytest.raises(DeclarationError, match=r"match\.1: 'gated'.* is matched by rule 0 already"):
        plan_with(tmp_path, rule, rule)
    with pytest.raises(DeclarationError) as caught:
        plan_with(tmp_path, "on: parameters, free: ffn.hidden, variants: [gatd]")
    (problem,) = caught.value.problems
    assert (problem.line, problem.path) == (10, "match.0.variants.0")
    assert "did you mean 'gated'?" in problem.message


def test_a_rule_that_cannot_be_met_is_told_at_its_own_line(tmp_path: Path):
    rule = "on: parameters, free: width, variants: [gated]"
    with pytest.raises(DeclarationError) as caught:
        plan_with(tmp_path, rule, "on: parameters, free: width, variants: [shallow], tolerance: 0.001")
    assert {(p.line, p.path) for p in caught.value.problems} >= {(11, "match.1")}


def test_values_that_are_not_legal_are_stepped_over_on_both_sides(tmp_path: Path):
    """With four heads and rotary positions every second width of a step of 4 is illegal: a head's must be even."""
    path = tmp_path / "study.yaml"
    study = STUDY.replace("tolerance: {tolerance}", "tolerance: {tolerance}, step: 4")
    path.write_text(
        study.format(
            baseline="position: {kind: rotary}, depth: 8", variant="depth: 2", on="parameters", free="width", tolerance=0.05
        )
    )
    plan = plan_study(load_study(path))
    chosen = plan.cells[1].architecture.width
    assert chosen % 8 == 0
    target = count(plan.cells[0].architecture).parameters.total
    errors = {}
    for width in range(128, 400, 8):
        path.write_text(study.replace("match:", "match: none #").format(
            baseline="position: {kind: rotary}, depth: 8", variant=f"depth: 2, width: {width}", on="", free="", tolerance=0
        ))  # fmt: skip
        errors[width] = abs(total(plan_study(load_study(path)), 1) / target - 1)
    assert chosen == min(errors, key=errors.__getitem__)
