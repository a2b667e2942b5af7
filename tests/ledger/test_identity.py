"""What makes a run this run."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knockout.account.matching import plan_study
from knockout.declare.architecture import Architecture
from knockout.declare.load import find_study, load_study
from knockout.declare.plain import canonical
from knockout.declare.recipe import DocumentPacking, Recipe
from knockout.ledger.identity import difference, identity, meaning

ARCHITECTURE = Architecture(width=64, depth=2, heads=2, context=128, vocabulary=512)
RECIPE = Recipe(tokens=2048, batch=8, learning_rate=1e-3)


def meaning_of(**changes: object) -> dict:
    settings = {"architecture": ARCHITECTURE, "recipe": RECIPE, "corpus": "d" * 64, "evaluation": {"tokens": 1}, "seed": 0}
    return meaning(**{**settings, **changes})  # type: ignore[arg-type]


def test_equal_meanings_have_one_identity_of_at_least_16_digits():
    assert identity(meaning_of()) == identity(meaning_of())
    assert len(identity(meaning_of())) >= 16


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"corpus": "e" * 64},
        {"evaluation": {"tokens": 2}},
        {"recipe": RECIPE.model_copy(update={"learning_rate": 2e-3})},
        {"architecture": ARCHITECTURE.model_copy(update={"depth": 3})},
    ],
)
def test_whatever_bears_meaning_changes_the_identity(changes: dict):
    assert identity(meaning_of(**changes)) != identity(meaning_of())


SHIPPED = {
    "moe": ("17e83ad6bfc1b31aa05c", "6883de63a5a9a6a07e98"),
    "causal-mask": ("5f59758964ded4881b9e", "ae354ef83854f5cea0dd"),
    "norm-placement": ("fede9cbf4b1c398a5271", "1f19160e16b28677eb20"),
}
"""Of the first and the last run of shipped studies, recorded before recipes could say how they pack."""


@pytest.mark.parametrize(("study", "recorded"), SHIPPED.items())
def test_what_declarations_can_say_besides_leaves_known_runs_their_identity(study: str, recorded: tuple[str, str]):
    runs = plan_study(load_study(find_study(study))).runs
    ends = [
        meaning_of(architecture=run.cell.architecture, recipe=run.cell.recipe, seed=run.seed) for run in (runs[0], runs[-1])
    ]
    assert tuple(map(identity, ends)) == recorded


def test_packing_is_part_of_a_meaning_only_where_it_is_not_as_ever():
    packed = RECIPE.model_copy(update={"packing": DocumentPacking()})
    assert "packing" not in meaning_of()["recipe"]
    assert difference(meaning_of(), meaning_of(recipe=packed)) == {"recipe.packing.kind": (None, "documents")}
    assert Recipe.model_validate(meaning_of()["recipe"]) == RECIPE


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), plain))
def test_the_order_of_keys_does_not_matter(data: dict):
    assert canonical(dict(reversed(list(data.items())))) == canonical(data)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), Path("/tmp"), {1: 2}, {1, 2}, b"x", object()])
def test_what_is_not_plain_data_is_refused(value: object):
    with pytest.raises(TypeError):
        canonical({"a": [value]})


def test_a_difference_names_the_paths():
    changed = meaning_of(seed=1, recipe=RECIPE.model_copy(update={"learning_rate": 2e-3}))
    assert difference(meaning_of(), changed) == {"recipe.learning_rate": (1e-3, 2e-3), "seed": (0, 1)}
