"""The shapes of expectation: what each reads, what it refuses and where, and which variants it names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from knockout.account.matching import plan_study
from knockout.declare.claim import Claim
from knockout.declare.load import load_study
from knockout.errors import DeclarationError

GAPS = {"2": {"variant": "a"}, "8": {"variant": "b", "than": "c"}}
SHAPES: list[dict[str, Any]] = [
    {"is": "order", "along": ["a", "b", "baseline"], "direction": "falls", "by": 0.1},
    {"is": "knee", "along": {"1": "a", "2": "b", "4": "baseline"}, "margin": 0.02, "within": [2.0, 4.0]},
    {"is": "threshold", "along": GAPS, "by": 0.5, "within": [8.0, None]},
    {"is": "interaction", "variant": "a", "than": "b", "over": {"variant": "c", "than": "d"}},
    {"is": "ratio", "variant": "a", "than": "b", "between": [None, 1.5], "metric": "peak_memory_bytes"},
    {"is": "trend", "variant": "a", "direction": "shrinks", "by": 0.1, "metric": "bits_per_byte"},
    {"is": "higher", "variant": "a", "metric": "tokens_per_second"},
    {"is": "lower", "variant": "a", "metric": "val_loss"},
]
NAMED = ["a b baseline", "a b baseline", "a baseline b c", "a b c d", "a b", "a baseline", "a baseline", "a baseline"]


def made(expect: dict[str, Any]) -> Claim:
    return Claim.model_validate({"id": "T1", "says": "It is so", "expect": expect})


@pytest.mark.parametrize(("expect", "named"), list(zip(SHAPES, NAMED, strict=True)))
def test_every_shape_is_written_back_as_it_was_read_and_knows_its_variants(expect: dict[str, Any], named: str) -> None:
    claim = made(expect)
    assert Claim.model_validate(claim.model_dump()) == claim
    assert Claim.model_validate_json(claim.model_dump_json()) == claim
    assert claim.model_dump()["expect"]["is"] == expect["is"]
    assert set(claim.expect.named.values()) == set(named.split())


KNEE = SHAPES[1]
THRESHOLD = SHAPES[2]


@pytest.mark.parametrize(
    ("expect", "place", "rule"),
    [
        ({**SHAPES[0], "along": ["a"]}, "along", "at least 2 items"),
        ({**SHAPES[0], "along": ["a", "b", "a"]}, "along.2", "stands in the row already"),
        ({**SHAPES[0], "direction": "up"}, "direction", "'falls' or 'rises'"),
        ({**KNEE, "along": {"1": "a", "3": "b"}}, "along.3", "must be 2, twice the x before it"),
        ({**KNEE, "along": {"2": "a", "1": "b"}}, "along.1", "must be over 2, the x before it"),
        ({**KNEE, "along": {"one": "a", "2": "b"}}, "along.one", "must be a number over 0"),
        ({**KNEE, "along": {"0": "a", "2": "b"}}, "along.0", "must be a number over 0"),
        ({**KNEE, "along": {"nan": "a", "2": "b"}}, "along.nan", "must be a number over 0"),
        ({**KNEE, "within": [1, 4]}, "within", "holds all of what can be found (1, 2, 4)"),
        ({**KNEE, "within": [5, 6]}, "within", "holds none of what can be found (1, 2, 4)"),
        ({**KNEE, "within": [4, 2]}, "within", "the lower end 4 is over the upper one 2"),
        ({**KNEE, "within": [None, None]}, "within", "at least one of the two ends"),
        ({**KNEE, "metric": "tokens_per_second"}, "metric", "Input should be 'val_loss'"),
        ({**THRESHOLD, "within": [2, None]}, "within", "holds all of what can be found (2, 8, beyond)"),
        ({**THRESHOLD, "along": {"2": {"variant": "baseline"}, "8": {"variant": "b"}}}, "along.2.than", "with itself"),
        ({**SHAPES[3], "over": {"variant": "a", "than": "b"}}, "over", "the gap between 'a' and 'b' itself"),
        ({**SHAPES[3], "than": "a"}, "than", "cannot be compared with itself"),
        ({**SHAPES[4], "between": [1.5, 1.0]}, "between", "the lower end 1.5 is over the upper one 1"),
        ({**SHAPES[4], "between": [None, None]}, "between", "at least one of the two ends"),
        ({**SHAPES[5], "variant": "baseline"}, "than", "cannot be compared with itself"),
        ({**SHAPES[6], "is": "worse"}, "is", "tokens_per_second is no loss, so neither side of it is worse"),
        ({"is": "equivalent", "variant": "a", "metric": "routing_entropy"}, "margin", "say how much of routing_entropy"),
    ],
)
def test_what_cannot_be_decided_is_refused_with_its_place(expect: dict[str, Any], place: str, rule: str) -> None:
    with pytest.raises(ValidationError) as caught:
        made(expect)
    found = [(".".join(map(str, error["loc"])), error["msg"]) for error in caught.value.errors()]
    assert any(path.endswith(f".{place}") and rule in message for path, message in found), found


STUDY = """\
study: shapes
question: Does it matter?
corpus: python-source
size: pico
variants:
  a: {depth: 3}
  b: {depth: 5}
seeds: 2
claims:
  - id: T1
    says: It matters
    expect:
      is: threshold
      along:
        2: {variant: a}
        8:
          variant: b
          than: a
      by: 0.5
      within: [8, 8]
  - id: T2
    says: It falls
    expect:
      is: order
      direction: falls
      along:
        - baseline
        - a
"""


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("2: {variant: a}", "2: {variant: aa}", "15: claims.0.expect.along.2.variant: 'aa' is not a variant of this study"),
        ("than: a", "than: c", "18: claims.0.expect.along.8.than: 'c' is not a variant of this study (baseline, a, b)"),
        ("        - a", "        - z", "28: claims.1.expect.along.1: 'z' is not a variant of this study"),
        ("8:\n", "1:\n", "16: claims.0.expect.along.1: '1': must be over 2, the x before it"),
        ("[8, 8]", "[9, 9]", "20: claims.0.expect.within: [9.0, 9.0]: holds none of what can be found (2, 8, beyond)"),
    ],
)
def test_a_mistake_inside_an_expectation_is_told_at_its_own_line(old: str, new: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(STUDY)
    assert [claim.expect.relation for claim in plan_study(load_study(path)).study.claims] == ["threshold", "order"]
    path.write_text(STUDY.replace(old, new))
    with pytest.raises(DeclarationError) as caught:
        plan_study(load_study(path))
    found = [f"{p.line}: {p.path}: {p.message}" for p in caught.value.problems]
    assert any(text.startswith(problem) for text in found), found
