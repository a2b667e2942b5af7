"""Studies: what is refused, with what words, and what they expand to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from knockout import project
from knockout.account.matching import plan_study
from knockout.declare.architecture import Architecture
from knockout.declare.load import Overrides, load_study
from knockout.declare.plan import Plan, plan_text
from knockout.declare.recipe import Recipe
from knockout.declare.study_schema import study_schema
from knockout.errors import DeclarationError, InputError

STUDY = """\
study: trial
question: Does it matter?
corpus: python-source
size: pico
baseline: {depth: 4}
variants:
  no-residual: {residual: {kind: none}}
seeds: 2
claims:
  - id: T1
    says: It matters
    expect: {variant: no-residual, is: worse, than: baseline, by: 0.5}
"""
GOLDEN = Path(__file__).parents[1] / "golden"


def plan_of(text: str, tmp_path: Path, **overrides: object) -> Plan:
    path = tmp_path / "study.yaml"
    path.write_text(text)
    return plan_study(load_study(path, overrides=Overrides(**overrides)))  # type: ignore[arg-type]


def problems_of(text: str, tmp_path: Path) -> list[str]:
    with pytest.raises(DeclarationError) as caught:
        plan_of(text, tmp_path)
    return [f"{p.line}: {p.path}: {p.message}" for p in caught.value.problems]


def test_a_context_that_the_exam_has_no_room_for_is_refused_at_the_corpus(tmp_path: Path):
    """The exam of python-source is 32,768 tokens in 16 segments of 2,048."""
    plan_of(STUDY.replace("depth: 4", "depth: 4, tokens: 100000000, context: 2048"), tmp_path)
    (found,) = problems_of(STUDY.replace("depth: 4", "depth: 4, tokens: 100000000, context: 4096"), tmp_path)
    assert found.startswith(
        "3: corpus: python-source's exam has 16 segments of 2,048 tokens each, in which a window of 4,096"
    )
    assert "raise evaluation.tokens to at least 65,536" in found


def test_a_study_expands_to_every_cell_with_every_seed(tmp_path: Path):
    plan = plan_of(STUDY, tmp_path)
    assert [run.name for run in plan.runs] == [
        "baseline · pico · s0",
        "no-residual · pico · s0",
        "baseline · pico · s1",
        "no-residual · pico · s1",
    ]
    assert {cell.architecture.depth for cell in plan.cells} == {4}
    assert plan.cells[1].architecture.residual.kind == "none"


def test_limits_change_nothing_that_is_trained(tmp_path: Path):
    free = plan_of(STUDY, tmp_path)
    limited = plan_of(STUDY + "limits: {run_seconds: 60, study_seconds: 7200.5}\n", tmp_path)
    assert (limited.study.limits.run_seconds, limited.study.limits.study_seconds) == (60.0, 7200.5)
    assert (limited.runs, limited.controls, limited.cells) == (free.runs, free.controls, free.cells)


def test_expansion_is_pure(tmp_path: Path):
    path = tmp_path / "study.yaml"
    path.write_text(STUDY)
    loaded = load_study(path)
    assert plan_study(loaded) == plan_study(loaded)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("seeds: 2", "seed: 2", "8: seed: unknown key"),
        ("seeds: 2", "seeds: 0", "8: seeds: 0 should be greater than or equal to 1"),
        ("seeds: 2", "seeds: '2'", "8: seeds: '2' should be a valid integer"),
        ("size: pico", "size: picco", "4: size: no size 'picco' in ablations/sizes/"),
        ("corpus: python-source", "corpus: python", "3: corpus: no corpus 'python' in data/"),
        ("{depth: 4}", "{dept: 4}", "5: dept: no such setting"),
        ("{depth: 4}", "{depth: -1}", "5: depth: -1 should be greater than or equal to 0"),
        ("{depth: 4}", "{heads: 7}", "5: heads: 7"),
        ("{depth: 4}", "{ffn.hidden: 8, ffn.expansion: 2.0}", "5: ffn"),
        ("{depth: 4}", "{tokens: 100}", "5: tokens: 100 tokens are less than one step of batch 8 × context 128"),
        (
            "{kind: none}",
            "{kind: non}",
            "7: residual: 'non' is not a residual (plain, none, scaled, deepnorm, rezero); did you mean 'none'?",
        ),
        ("{kind: none}", "{kind: none, alpha: 2}", "7: residual.alpha: unknown key; allowed are kind"),
        ("than: baseline", "than: basline", "12: claims.0.expect.than: 'basline' is not a variant of this study"),
        ("is: worse", "is: wors", "12: claims.0.expect: 'wors' is not an expect"),
        ("no-residual: {", "baseline: {", "variants.baseline: 'baseline': this is the baseline's own name"),
        ("size: pico", "", "1: size: null: give either `size` or `sizes`"),
        ("question: Does it matter?", "", "1: question: this key is required and missing"),
        ("study: trial", "study: ../trial", "1: study: '../trial' must be lower-case letters"),
    ],
)
def test_each_mistake_gives_one_message_at_its_line(old: str, new: str, problem: str, tmp_path: Path):
    found = problems_of(STUDY.replace(old, new), tmp_path)
    assert any(problem in text for text in found), found


def test_all_problems_of_a_file_are_told_at_once(tmp_path: Path):
    text = STUDY.replace("{depth: 4}", "{depht: 4, attention.kind: gruoped}").replace("{kind: none}", "{kind: nonee}")
    found = problems_of(text.replace("than: baseline", "than: basline"), tmp_path)
    assert [text.split(": ")[1] for text in found] == ["depht", "attention", "residual", "claims.0.expect.than"]


def test_a_changed_kind_keeps_what_both_kinds_have(tmp_path: Path):
    text = STUDY.replace("{depth: 4}", "{norm: {kind: layer, placement: post, eps: 1.0e-6}}")
    plan = plan_of(text.replace("{residual: {kind: none}}", "{norm.kind: rms}"), tmp_path)
    norm = plan.cells[1].architecture.norm
    assert norm.model_dump() == {"kind": "rms", "placement": "post", "eps": 1e-6}


def test_two_ways_to_say_a_width_are_one_setting(tmp_path: Path):
    text = STUDY.replace("{depth: 4}", "{ffn.expansion: 2.0}")
    text = text.replace("{residual: {kind: none}}", "{ffn: {hidden: 128}, depth: 3}")
    baseline, variant = plan_of(text, tmp_path).cells
    assert baseline.architecture.ffn == variant.architecture.ffn
    assert baseline.architecture.ffn.model_dump() == {"kind": "gelu", "hidden": 128, "expansion": None}


def test_changes_from_the_command_line_reach_the_baseline(tmp_path: Path):
    plan = plan_of(STUDY, tmp_path, size="nano", seeds=1, settings=("depth=8", "norm.placement=post"))
    assert [(cell.size, cell.architecture.depth, cell.architecture.norm.placement) for cell in plan.cells] == [  # type: ignore[union-attr]
        ("nano", 8, "post"),
        ("nano", 8, "post"),
    ]
    assert len(plan.runs) == 2


def test_a_size_can_have_a_budget_of_its_own(tmp_path: Path):
    text = STUDY.replace("size: pico", "sizes: [pico, nano]").replace(
        "variants:", "at: {nano: {tokens: 4096000}}\nvariants:"
    )
    tokens = {cell.size: cell.recipe.tokens for cell in plan_of(text, tmp_path).cells}
    assert tokens == {"pico": 2_048_000, "nano": 4_096_000}


def test_the_command_line_wins_over_a_size_s_own_budget(tmp_path: Path):
    text = STUDY.replace("variants:", "at: {pico: {tokens: 4096000}}\nvariants:")
    plan = plan_of(text, tmp_path, settings=("tokens=102400", "norm.placement=post"))
    assert {cell.recipe.tokens for cell in plan.cells} == {102_400}
    assert plan.arguments == "--set tokens=102400 --set norm.placement=post"


def test_a_change_without_an_equals_sign_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="write it as path=value"):
        plan_of(STUDY, tmp_path, settings=("depth",))


@pytest.mark.parametrize(
    ("vary", "names"),
    [
        ("{mode: one-factor, over: {depth: [2, 8], norm.placement: [post]}}", ["depth-2", "depth-8", "norm.placement-post"]),
        (
            "{mode: product, over: {depth: [2, 8], residual.kind: [plain, none]}}",
            ["depth-2+residual-plain", "depth-2+residual-none", "depth-8+residual-plain", "depth-8+residual-none"],
        ),
        (
            "{mode: leave-one-out, over: {residual.kind: none, norm.kind: none, ffn.kind: none},"
            " groups: {block: [norm.kind, ffn.kind]}}",
            ["no-block", "no-residual"],
        ),
    ],
)
def test_variants_by_rule(vary: str, names: list[str], tmp_path: Path):
    text = STUDY.split("variants:")[0] + f"vary: {vary}\nseeds: 1\n"
    assert [cell.variant for cell in plan_of(text, tmp_path).cells] == ["baseline", *names]


def test_names_of_architecture_and_recipe_settings_never_collide():
    assert not set(Architecture.model_fields) & set(Recipe.model_fields)


def test_the_schema_knows_settings_in_patches():
    schema = study_schema()
    assert {"depth", "residual", "learning_rate"} <= set(schema["$defs"]["Patch"]["properties"])
    assert json.loads(json.dumps(schema)) == schema


@pytest.mark.parametrize("name", project.names("ablations"))
def test_each_shipped_plan_is_the_reviewed_one(name: str):
    plan = plan_study(load_study(project.root() / "ablations" / f"{name}.yaml"))
    reviewed = GOLDEN / f"{name}.txt"
    assert plan_text(plan) + "\n" == reviewed.read_text(), f"if it is meant: knockout plan {name} --resolved > {reviewed}"


def test_problems_of_a_studys_own_keys_do_not_hide_those_of_its_variants(tmp_path: Path):
    text = (
        STUDY.replace("seeds: 2", "seeds: two")
        .replace("{kind: none}", "{kind: nonee}")
        .replace("size: pico", "size: pico\nmatsch: 1")
    )
    found = problems_of(text.replace("corpus: python-source", "corpus: pyton-source"), tmp_path)
    assert [text.split(": ")[1] for text in found] == ["corpus", "matsch", "residual", "seeds"]
    assert found[-1].endswith("'two' should be a valid integer, or list")


def test_a_bare_kind_is_told_how_to_be_written(tmp_path: Path):
    (found,) = problems_of(STUDY.replace("{residual: {kind: none}}", "{residual: none}"), tmp_path)
    assert found == "7: residual: 'none' must be a mapping: write {kind: none}"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("seeds: 2", "vary: {mode: one-factor, over: {residual.kind: [none]}}", "second variant named"),
        ("seeds: 2", "vary: {mode: product, over: {depth: [], heads: [1]}}", "vary.over.depth"),
        ("seeds: 2", "at: {nanoo: {tokens: 9000}}", "at.nanoo: 'nanoo' is not a size"),
        ("seeds: 2", "at: {nano: {dpeth: 9}}", "dpeth: no such setting"),
        ("seeds: 2", "seeds: 99999999999999999999", "seeds: "),
        ("seeds: 2", "seeds: [9223372036854775808]", "seeds.0: "),
        ("{depth: 4}", "{depth: 9223372036854775808}", "depth: "),
        ("{depth: 4}", "{attention.causal: false, attention: {causal: true}}", "is set as a whole and by a dotted path"),
        ("Does it matter?", '"red \\e[31m"', "question: holds the character U+001B"),
        ("Does it matter?", '"half \\ud800"', "question: holds the character U+D800"),
        ("seeds: 2", "recipe: foo", "there are none"),
    ],
)
def test_slips_of_the_keyboard_are_told(old: str, new: str, problem: str, tmp_path: Path):
    text = (
        STUDY.replace(old, new)
        .replace("  no-residual: {", "  residual-none: {")
        .replace("variant: no-residual", "variant: residual-none")
    )
    found = problems_of(text, tmp_path)
    assert any(problem in text for text in found), found


def test_too_many_variants_and_too_deep_a_file_are_told_and_not_tried(tmp_path: Path):
    many = list(range(1, 60))
    text = STUDY.replace("seeds: 2", f"vary: {{mode: product, over: {{depth: {many}, heads: {many}, width: {many}}}}}")
    assert any("makes more than 10,000 variants" in problem for problem in problems_of(text, tmp_path))
    with pytest.raises(DeclarationError, match="too deeply nested"):
        plan_of("study: " + "[" * 3000, tmp_path)


def test_every_study_with_two_seeds_has_its_baseline_again_with_as_many_fresh_ones(tmp_path: Path):
    plan = plan_of(STUDY, tmp_path)
    assert [(run.cell.variant, run.seed, run.role) for run in plan.controls] == [
        ("baseline again", 2_000_000, "control"),
        ("baseline again", 2_000_001, "control"),
    ]
    assert plan.controls[0].cell.architecture == plan.cells[0].architecture
    assert not plan_of(STUDY, tmp_path, seeds=1).controls
    assert not plan_of(STUDY + "controls: {aa: false}\n", tmp_path).controls


def test_shuffled_tokens_are_a_control_on_request_and_bear_identity(tmp_path: Path):
    plan = plan_of(STUDY + "controls: {aa: false, shuffled: true}\n", tmp_path)
    (run,) = plan.controls
    assert run.cell.recipe.shuffle_tokens
    assert not plan.cells[0].recipe.shuffle_tokens


def test_a_further_look_adds_seeds_for_what_is_open(tmp_path: Path):
    plan = plan_of(STUDY + "settle: [4, 8]\n", tmp_path)
    assert plan.study.looks == (2, 4, 8)
    later = plan.at_look(1, variants={"no-residual"})
    assert [run.seed for run in later.runs if run.cell.variant == "no-residual"] == [0, 1, 2, 3]
    assert [run.seed for run in later.runs if run.cell.variant == "baseline"] == [0, 1]
    named = plan_of(STUDY.replace("seeds: 2", "seeds: [1, 7]") + "settle: [4]\n", tmp_path)
    assert named.study.seeds_at(1) == (1, 7, 0, 2)


def test_looks_that_do_not_rise_are_refused(tmp_path: Path):
    assert problems_of(STUDY + "settle: [2, 4]\n", tmp_path) == [
        "13: settle: [2, 4]: must rise from more than the study's 2 seeds"
    ]
    with pytest.raises(InputError, match="declares no further looks"):
        plan_of(STUDY, tmp_path, settle=True)


def test_what_would_undo_a_match_is_not_searched(tmp_path: Path):
    matched = STUDY + "match: {on: parameters, free: ffn.hidden}\n"
    for search in ("ffn.hidden: {low: 16, high: 256}", "width: {low: 16, high: 64}"):
        found = problems_of(matched + f"tune: {{{search}, trials: 3}}\n", tmp_path)
        assert any("would change what `match` holds equal" in problem for problem in found), found
    plan_of(
        matched.replace("ffn.hidden}", "ffn.hidden, variants: [no-residual]}")
        + "tune: {learning_rate: {low: 1.0e-3, high: 1.0e-2}}\n",
        tmp_path,
    )


def test_seeds_of_trials_and_controls_cannot_be_judged_ones_and_one_seed_cannot_be_settled(tmp_path: Path):
    assert problems_of(STUDY.replace("seeds: 2", "seeds: [1, 2000000]"), tmp_path) == [
        "8: seeds: 2000000: must be under 1,000,000: seeds from there on are for trials and controls"
    ]
    (found,) = problems_of(STUDY.replace("seeds: 2", "seeds: 1") + "settle: [2, 3]\n", tmp_path)
    assert "needs a first look of at least two seeds" in found


def test_a_trend_needs_more_than_one_size_unless_a_command_asks_for_one(tmp_path: Path):
    text = STUDY.replace("is: worse, than: baseline, by: 0.5", "is: trend, direction: grows")
    rule = "claims.0.expect.is: a trend is over sizes, and this study names one: give two or more, as `sizes: [pico, nano]`"
    assert problems_of(text, tmp_path) == [f"12: {rule}"]
    assert problems_of(text.replace("size: pico", "sizes: [pico]"), tmp_path) == [f"12: {rule}"]
    several = text.replace("size: pico", "sizes: [pico, nano]")
    assert {cell.size for cell in plan_of(several, tmp_path).cells} == {"pico", "nano"}
    assert {cell.size for cell in plan_of(several, tmp_path, size="pico").cells} == {"pico"}


def test_the_vocabulary_is_not_searched(tmp_path: Path):
    (found,) = problems_of(STUDY + "tune: {vocabulary: {low: 256, high: 1024}, trials: 3}\n", tmp_path)
    assert found == (
        "13: tune.vocabulary: 'searched': it decides what the tokens are, and losses over different tokens have no best; "
        "make variants of it"
    )
