"""Variants and claims that come to nothing: what is refused before anything runs, and at which line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from knockout.account.matching import plan_study
from knockout.declare.claim import Claim, Decide
from knockout.declare.load import Overrides, load_study
from knockout.declare.plan import Plan
from knockout.declare.statement import Statement, statement
from knockout.errors import DeclarationError

STUDY = """\
study: vain
question: Does it come to anything?
corpus: python-source
size: pico
baseline: {depth: 4}
variants:
  rms: {norm: {kind: rms}}
  deep: {depth: 6}
  open: {attention: {causal: false}}
  moe: {ffn: {kind: moe, experts: 4, top_k: 1}}
  moe-2: {ffn: {kind: moe, experts: 4, top_k: 2}}
seeds: [1, 2]
claims:
  - id: A
    says: It is so
    expect: {variant: rms, is: worse, than: deep, by: 0.5}
"""


def plan_of(text: str, tmp_path: Path, **overrides: object) -> Plan:
    path = tmp_path / "study.yaml"
    path.write_text(text)
    return plan_study(load_study(path, overrides=Overrides(**overrides)))  # type: ignore[arg-type]


def problems_of(text: str, tmp_path: Path) -> list[str]:
    with pytest.raises(DeclarationError) as caught:
        plan_of(text, tmp_path)
    return [f"{p.line}: {p.path}: {p.message}" for p in caught.value.problems]


def second(expect: str) -> str:
    return f"{STUDY}  - id: B\n    says: It is so again\n    expect: {expect}\n"


def test_a_seed_or_a_size_that_stands_twice_is_refused(tmp_path: Path):
    assert problems_of(STUDY.replace("[1, 2]", "[1, 2, 1]"), tmp_path) == [
        "12: seeds.2: 1: stands in seeds already: each counts once"
    ]
    assert problems_of(STUDY.replace("size: pico", "sizes: [pico, nano, pico]"), tmp_path) == [
        "4: sizes.2: 'pico': stands in sizes already: each counts once"
    ]


@pytest.mark.parametrize("patch", ["{}", "{norm: {kind: layer}}", "{depth: 4, ffn: {expansion: 4.0}}"])
def test_a_variant_that_changes_nothing_is_refused_at_its_patch(patch: str, tmp_path: Path):
    assert problems_of(STUDY.replace("{norm: {kind: rms}}", patch), tmp_path) == [
        "7: variants.rms: 'rms' changes nothing against the baseline, every setting of which it has: "
        "change another one, or leave the variant out"
    ]


def test_what_changes_something_at_one_size_is_no_mistake(tmp_path: Path):
    text = STUDY.replace("{depth: 4}", "{}").replace("{depth: 6}", "{depth: 4}")
    assert len(plan_of(text.replace("size: pico", "sizes: [pico, nano]"), tmp_path).cells) == 12
    (problem,) = problems_of(text.replace("size: pico", "size: nano"), tmp_path)
    assert problem.startswith("8: variants.deep: 'deep' changes nothing")
    assert plan_of(text, tmp_path, size="nano").cells[2].architecture.depth == 4


def test_a_command_may_bring_the_baseline_to_a_variant(tmp_path: Path):
    baseline, _, deep, *_ = plan_of(STUDY, tmp_path, settings=("depth=6",)).cells
    assert baseline.architecture == deep.architecture


def test_a_grid_may_hold_the_baseline_and_a_part_that_is_left_out_may_not(tmp_path: Path):
    grid = "vary: {mode: product, over: {depth: [4, 16], residual.kind: [plain, none]}}\nseeds:"
    assert "depth-4+residual-plain" in {cell.variant for cell in plan_of(STUDY.replace("seeds:", grid), tmp_path).cells}
    out = "vary: {mode: leave-one-out, over: {residual.kind: plain}}\nseeds:"
    (problem,) = problems_of(STUDY.replace("seeds:", out), tmp_path)
    assert problem.startswith("12: vary: 'no-residual' changes nothing against the baseline")


@pytest.mark.parametrize(
    ("patch", "path", "of"),
    [
        ("{norm: {kind: rms}, learning_rate: 0.5}", "learning_rate", "learning_rate"),
        ("{optimizer: {beta2: 0.9}}", "optimizer.beta2", "optimizer.beta2"),
        ("{optimizer.beta2: 0.9}", "optimizer.beta2", "optimizer.beta2"),
    ],
)
def test_what_a_search_overwrites_is_refused_where_it_is_written(patch: str, path: str, of: str, tmp_path: Path):
    search = (
        "tune: {learning_rate: {low: 1e-3, high: 1e-1}, optimizer.beta2: {low: 0.9, high: 0.99}, sampler: {kind: tpe}}\n"
    )
    assert problems_of(STUDY.replace("{norm: {kind: rms}}", patch) + search, tmp_path) == [
        f"7: variants.rms.{path}: the search of {of} overwrites what 'rms' sets, so that no run is trained at it: "
        "leave one of the two out"
    ]


@pytest.mark.parametrize(
    "expect",
    [
        "{variant: rms, is: worse, than: deep, by: 0.5}",
        "{variant: rms, is: higher, than: deep, by: 0.5, metric: val_loss}",
        "{variant: deep, is: better, than: rms, by: 0.5}",
    ],
)
def test_one_claim_under_two_ids_is_refused_in_whatever_words(expect: str, tmp_path: Path):
    assert problems_of(second(expect), tmp_path) == [
        "19: claims.1.expect: 'B' expects the same as 'A', and each would take its share of alpha: keep one of them"
    ]


@pytest.mark.parametrize(
    "expect",
    [
        "{variant: rms, is: worse, than: deep, by: 0.4}",
        "{variant: rms, is: worse, than: deep, by: 0.5, metric: train_loss}",
        "{variant: rms, is: better, than: deep, by: 0.5}",
        "{variant: rms, is: equivalent, than: deep, margin: 0.5}",
        "{variant: rms, is: worse, by: 0.5}",
    ],
)
def test_other_claims_about_the_pair_are_not_the_same(expect: str, tmp_path: Path):
    assert len(plan_of(second(expect), tmp_path).study.claims) == 2


def stated(expect: Mapping[str, object], *, seeing: tuple[str, ...] = ()) -> Statement:
    claim = Claim.model_validate({"id": "T", "says": "So", "expect": expect})
    return statement(claim.expect, decide=Decide(margin=0.03), seeing=seeing)


def test_a_statement_is_a_range_of_one_contrast():
    """b - a > 0.1 is a - b < -0.1; |a - b| <= 0.03 is its own mirror; (a-b) - (c-b) is a - c."""
    over = stated({"is": "worse", "variant": "b", "than": "a", "by": 0.1})
    assert (over.low, over.high) == (float("-inf"), -0.1)
    assert stated({"is": "equivalent", "variant": "b", "than": "a"}) == stated(
        {"is": "equivalent", "variant": "a", "than": "b", "margin": 0.03, "metric": "val_loss"}
    )
    gaps = {"is": "interaction", "variant": "a", "than": "b", "over": {"variant": "c", "than": "b"}, "by": 0.2}
    assert stated(gaps) == stated({"is": "worse", "variant": "a", "than": "c", "by": 0.2})
    assert stated({"is": "trend", "variant": "a", "direction": "grows"}) != stated({"is": "worse", "variant": "a"})


def test_the_metric_of_a_model_that_sees_the_future_is_another_one():
    plain, named = {"is": "worse", "variant": "a"}, {"is": "worse", "variant": "a", "metric": "val_loss"}
    assert stated(plain) == stated(named)
    assert stated(plain, seeing=("a",)) != stated(named, seeing=("a",))
    assert stated(plain, seeing=("a",)) == stated({**plain, "metric": "generation_loss"}, seeing=("a",))


@pytest.mark.parametrize(
    ("one", "other", "excluded"),
    [
        ({"is": "worse"}, {"is": "better"}, True),
        ({"is": "worse", "by": 0.02}, {"is": "equivalent", "margin": 0.02}, True),
        ({"is": "worse", "by": 0.01}, {"is": "equivalent", "margin": 0.02}, False),
        ({"is": "ratio", "between": [None, 1.0]}, {"is": "ratio", "between": [1.5, 2.0]}, True),
        ({"is": "ratio", "between": [None, 1.7]}, {"is": "ratio", "between": [1.5, 2.0]}, False),
        ({"is": "trend", "direction": "grows"}, {"is": "trend", "direction": "shrinks"}, True),
        ({"is": "worse"}, {"is": "better", "metric": "train_loss"}, False),
        ({"is": "worse"}, {"is": "worse", "by": 0.5}, False),
        ({"is": "worse"}, {"is": "worse"}, False),
    ],
)
def test_claims_exclude_each_other_when_their_ranges_share_nothing(
    one: dict[str, object], other: dict[str, object], excluded: bool
):
    first, then = (stated({"variant": "a", "than": "b", **expect}) for expect in (one, other))
    assert (first.excludes(then), then.excludes(first)) == (excluded, excluded)


def test_a_metric_that_a_variant_never_records_is_refused(tmp_path: Path):
    assert problems_of(second("{variant: moe, is: higher, metric: routing_entropy}"), tmp_path) == [
        "19: claims.1.expect.metric: baseline would never record routing_entropy: there is no layer with `ffn: {kind: moe}`"
    ]
    plan_of(second("{variant: moe, is: higher, than: moe-2, metric: routing_entropy}"), tmp_path)
    late = STUDY.replace("{norm: {kind: rms}}", "{layers: {'3': {ffn: {kind: moe, experts: 4, top_k: 1}}}}")
    plan_of(second("{variant: rms, is: higher, than: moe, metric: routing_entropy}").replace(STUDY, late), tmp_path)


@pytest.mark.parametrize(
    ("baseline", "variant", "place", "who"),
    [
        ("{tokens: 51200}", "{norm: {kind: rms}}", "5: tokens", "baseline"),
        ("{depth: 4}", "{norm: {kind: rms}, tokens: 51200}", "7: tokens", "rms"),
        ("{tokens: 51200, warmup_steps: 5}", "{warmup_steps: 51}", "7: warmup_steps", "rms"),
        ("{depth: 4}", "{batch: 400}", "7: batch", "rms"),
    ],
)
def test_a_warm_up_that_is_too_long_is_told_where_the_study_made_it_so(
    baseline: str, variant: str, place: str, who: str, tmp_path: Path
):
    """pico warms up for 100 steps; 51,200 tokens are 50 steps of 1,024, and pico's 2,048,000 are 40 of 51,200."""
    text = STUDY.replace("{depth: 4}", baseline).replace("{norm: {kind: rms}}", variant)
    (problem,) = problems_of(text, tmp_path)
    assert problem.startswith(f"{place}: the warm-up of ")
    assert f"longer than the run of {40 if 'batch' in variant else 50} steps" in problem
    assert problem.endswith(f"{who} at pico in study vain")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "{norm: {kind: rms}}",
            "{attention: {kv_heads: 2}}",
            "7: attention.kv_heads: unknown key; allowed are causal, computation, kind, qk_norm, scale; "
            "`kind: grouped` and `kind: window` have it",
        ),
        ("by: 0.5", "between: [1, 2]", "allowed are by, is, metric, than, variant; `is: ratio` has it"),
        ("than: deep", "to: deep", "`is: equivalent` has it"),
        ("{norm: {kind: rms}}", "{norm: {placemnt: post}}", "did you mean 'placement'?"),
    ],
)
def test_a_key_that_another_kind_has_is_told_with_that_kind(old: str, new: str, said: str, tmp_path: Path):
    found = problems_of(STUDY.replace(old, new), tmp_path)
    assert any(said in problem for problem in found), found


def test_one_seed_judges_no_claim_about_runs_unless_a_command_only_tries_it(tmp_path: Path):
    one = STUDY.replace("seeds: [1, 2]", "seeds: 1")
    rule = "one seed has no spread, and cannot judge A: give two or more; `--seeds 1` only tries the study"
    assert problems_of(one, tmp_path) == [f"12: seeds: {rule}"]
    assert problems_of(one.replace("seeds: 1", "seeds: [7]"), tmp_path) == [f"12: seeds: {rule}"]
    assert len(plan_of(STUDY, tmp_path, seeds=1).runs) == 6
    calculated = one.replace("{variant: rms, is: worse, than: deep, by: 0.5}", "{variant: open, is: not_causal}")
    assert len(plan_of(calculated, tmp_path).runs) == 6
    assert len(plan_of(one.partition("claims:")[0], tmp_path).runs) == 6
