"""Counted claims: every row of the claims' table, numbers worked out by hand, and verdicts that follow the numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from knockout.declare.calculation import Count
from knockout.declare.claims_file import LoadedClaim, choose, is_claims_file, load_claims, titles_of
from knockout.declare.quantities import UNITS, Quantity
from knockout.errors import DeclarationError, InputError
from knockout.judge.calculation.calculated import CalculatedVerdict
from knockout.judge.calculation.counts import decide_count
from knockout.judge.calculation.quantities import NAMES, measure

ROWS = [
    "T3.2-ffn",
    "T3.2-attn",
    "T3.2-emb",
    "T3.2-norm",
    "T7.2-norm-sum",
    "T3.2-zero",
    "T4.2-flat",
    "T4.4-tie",
    "T5.2-pos",
    "T6.2-attn-layer",
    "T8.3-ffn-layer",
    "T15.2-expansion",
    "T10.3-adam",
    "T11.3-kv",
    "T16.3-gqa",
    "T16.3-mla",
    "T16.5-dsv3",
    "T16.6-head",
    "L2.5-405b",
    "L2.5-bill",
    "L1.6-mha",
    "L1.7-moe-mem",
    "L2.3-tied",
]
"""The ids of the claims that both documents make about counts."""

D, LAYERS, VOCABULARY = 12288, 96, 50257
GPT3 = VOCABULARY * D + 2048 * D + LAYERS * 12 * D**2 + (2 * LAYERS + 1) * D
LLAMA_LAYER = 2 * 16384**2 + 2 * 16384 * 1024 + 3 * 16384 * 53248 + 2 * 16384
LLAMA = 2 * 128256 * 16384 + 126 * LLAMA_LAYER + 16384
BY_HAND: dict[str, float] = {
    "T3.2-ffn": LAYERS * 8 * D**2,
    "T3.2-ffn.share": LAYERS * 8 * D**2 / GPT3,
    "T3.2-ffn.share.printed": LAYERS * 8 * D**2 / 175e9,
    "T3.2-attn.share.printed": LAYERS * 4 * D**2 / 175e9,
    "T3.2-ffn.one": 2,
    "T3.2-ffn.one.map": 4 * D**2,
    "T3.2-ffn.one.part": 8 * D**2,
    "T3.2-attn": LAYERS * 4 * D**2,
    "T3.2-emb": (VOCABULARY + 2048) * D,
    "T3.2-norm": 193 * 2 * D,
    "T7.2-norm-sum": 96 * 49152 + 24576,
    "T7.2-norm-sum.product": 96 * 49152,
    "T4.4-tie": 617_558_016,
    "T5.2-pos.under": 2048 * D / GPT3,
    "T6.2-attn-layer.biases": 4 * D**2 + 4 * D,
    "T15.2-expansion.eight": 16 * D**2,
    "T10.3-adam": 3,
    "T10.3-adam.gradients": 4,
    "T11.3-kv": 2 * 96 * D * 2,
    "T11.3-kv.long-decimal": 2 * 96 * D * 2 * 100_000,
    "T16.3-gqa.llama3-405b": 8 / 128,
    "T16.3-mla": 2 * 8 * 128 / (512 + 64),
    "T16.3-mla.llama3-405b": 126 * 2 * 8 * 128 / (61 * (512 + 64)),
    "T16.6-head": 128256 * D,
    "L2.5-405b": LLAMA,
    "L2.5-405b.layer": LLAMA_LAYER,
    "L2.5-405b.layers": 126 * LLAMA_LAYER,
    "L2.5-405b.layers.printed": 126 * LLAMA_LAYER,
    "L2.5-bill.head": 128256 * 16384,
    "L2.5-405b.bytes-decimal": 2 * LLAMA,
    "L2.5-bill": LLAMA,
    "L1.6-mha": 16384 // 128,
    "L1.6-mha.maps-grouped": 2 * 16384**2 + 2 * 16384 * 1024,
    "L2.3-tied": 32000 * 4096,
    "L2.3-tied.gpt2": 0,
}
WRONG = {
    "T3.2-ffn.share.printed",
    "T3.2-attn.share.printed",
    "L2.5-405b.layers.printed",
    "L2.5-bill.head",
    "T5.2-pos.under",
    "T6.2-attn-layer.biases",
    "T7.2-norm-sum",
    "T7.2-norm-sum.product",
    "T10.3-adam.gradients",
    "T11.3-kv.token-decimal",
    "T11.3-kv.context-decimal",
    "T11.3-kv.long-decimal",
    "T11.3-kv.long-binary",
    "T16.3-gqa.llama3-405b",
    "T16.3-gqa.llama2-7b",
    "T16.3-mla",
    "T16.3-mla.multi-head",
    "T16.6-head.rounded",
    "L1.6-mha.maps-grouped",
    "L2.3-tied",
    "L2.5-405b.rounded",
    "L2.5-405b.bytes-binary",
    "L2.5-bill",
    "L2.5-bill.embedding",
    "L2.5-bill.layers",
}
"""Readings whose numbers do not agree with the arithmetic above."""


@pytest.fixture(scope="module")
def claims() -> dict[str, LoadedClaim]:
    return {item.claim.id: item for item in load_claims() if item.kind == "count"}


@pytest.fixture(scope="module")
def verdicts(claims: dict[str, LoadedClaim]) -> dict[str, CalculatedVerdict]:
    return {name: decide_count(item) for name, item in claims.items()}


def changed(loaded: LoadedClaim, **expect: Any) -> LoadedClaim:
    claim = loaded.claim.model_copy(update={"expect": loaded.claim.expect.model_copy(update=expect)})
    return LoadedClaim(claim, loaded.architectures)


def write(folder: Path, *claims: str, name: str = "mine") -> Path:
    file = folder / f"{name}.yaml"
    file.write_text("subject: a test\nclaims:\n" + "".join(f"  - {claim}\n" for claim in claims))
    return file


def one(expect: str, *, name: str = "X1") -> str:
    return f"{{id: {name}, document: T, section: '1', says: it is so, expect: {{{expect}}}}}"


@pytest.mark.parametrize("row", ROWS)
def test_every_count_of_the_documents_is_a_claim(row: str, claims: dict[str, LoadedClaim]) -> None:
    assert row in claims
    assert claims[row].claim.document == row[0]


@pytest.mark.parametrize("name", sorted(BY_HAND))
def test_the_computed_number_is_the_one_worked_out_by_hand(name: str, verdicts: dict[str, CalculatedVerdict]) -> None:
    assert verdicts[name].computed == pytest.approx(BY_HAND[name], rel=1e-11, abs=0)


def test_the_wrong_statements_are_the_refuted_ones(verdicts: dict[str, CalculatedVerdict]) -> None:
    assert {name for name, found in verdicts.items() if found.verdict == "refuted"} == WRONG


def test_another_number_in_the_file_makes_another_verdict(
    claims: dict[str, LoadedClaim], verdicts: dict[str, CalculatedVerdict]
) -> None:
    printed = {
        name: item for name, item in claims.items() if isinstance(item.claim.expect, Count) and item.claim.expect.value
    }
    assert len(printed) > 30
    for name, item in printed.items():
        expect, found = item.claim.expect, verdicts[name]
        assert isinstance(expect, Count)
        assert isinstance(found.computed, int | float)
        right = found.computed / UNITS[expect.unit]
        assert decide_count(changed(item, value=right)).verdict == "supported"
        assert decide_count(changed(item, value=right + 1.01 * expect.tolerance + 1e-6 * right)).verdict == "refuted"
        assert decide_count(changed(item, value=right - 1.01 * expect.tolerance - 1e-6 * right)).verdict == "refuted"


def test_a_number_changed_on_disk_changes_the_verdict(tmp_path: Path) -> None:
    told = [
        decide_count(
            load_claims([write(tmp_path, one(f"is: count, preset: gpt3, quantity: layer.norm, value: {value}"))])[0]
        )
        for value in (24576, 24577)
    ]
    assert [found.verdict for found in told] == ["supported", "refuted"]


def test_bounds_are_within_or_not(claims: dict[str, LoadedClaim]) -> None:
    share = claims["T3.2-norm.share"]
    assert decide_count(share).stated == [None, pytest.approx(3e-5)]
    assert decide_count(changed(share, high=0.0027)).verdict == "refuted"
    assert decide_count(changed(share, low=0.0027, high=None)).verdict == "supported"


def test_a_reason_shows_the_right_value_and_the_distance(verdicts: dict[str, CalculatedVerdict]) -> None:
    assert "4,743,168 = 96 × 49,152 + 24,576" in verdicts["T7.2-norm-sum"].detail
    assert "225,024" in verdicts["T7.2-norm-sum"].detail
    assert "too high" in verdicts["T7.2-norm-sum"].detail
    assert "10 times too small: a unit has slipped" in verdicts["L2.5-bill"].detail
    assert "to as many digits it is 1.58" in verdicts["T16.6-head.rounded"].detail
    assert verdicts["L2.3-tied"].detail.endswith("the stated 0 is 131,072,000 too low")
    assert "over 175 B as printed" in verdicts["T3.2-ffn.share.printed"].detail
    assert "to as many digits it is 66.3 %" in verdicts["T3.2-ffn.share.printed"].detail
    assert "to as many digits it is 33.1 %" in verdicts["T3.2-attn.share.printed"].detail
    assert "10 times too small: a unit has slipped" in verdicts["L2.5-405b.layers.printed"].detail


def test_a_share_over_a_hundred_percent_is_written_out(claims: dict[str, LoadedClaim]) -> None:
    detail = decide_count(changed(claims["L1.6-mha"], value=1.0)).detail
    assert "(99 %)" in detail
    assert "(100 %)" in decide_count(changed(claims["T4.4-tie"], value=1.0)).detail
    assert "(1,500 %)" in decide_count(changed(claims["T8.3-ffn-layer.twice"], value=32.0)).detail


@pytest.mark.parametrize("name", ["T3.2-ffn.one", "T3.2-ffn.one.map", "T3.2-ffn.one.part"])
def test_each_number_of_a_sentence_with_several_is_checked(name: str, claims: dict[str, LoadedClaim]) -> None:
    item = claims[name]
    assert decide_count(item).verdict == "supported"
    assert decide_count(changed(item, value=item.claim.expect.value + 1)).verdict == "refuted"  # pyright: ignore


def test_every_document_of_the_shipped_claims_has_its_title(claims: dict[str, LoadedClaim]) -> None:
    titles = titles_of(tuple(claims.values()))
    assert set(titles) == {item.claim.document for item in claims.values()}
    assert titles["T"] == "如何通俗理解 Transformer 架构"


def test_two_titles_of_one_document_are_a_problem(tmp_path: Path) -> None:
    claim = "is: count, preset: gpt2, quantity: heads.width, value: 64"
    files = [write(tmp_path, one(claim, name=name), name=name) for name in ("A1", "A2")]
    for file in files:
        file.write_text(f"documents: {{T: the title of {file.stem}}}\n{file.read_text()}")
    with pytest.raises(DeclarationError, match="another file calls T 'the title of A1'"):
        load_claims(files)


def test_where_titles_are_given_every_document_has_one(tmp_path: Path) -> None:
    file = write(tmp_path, one("is: count, preset: gpt2, quantity: heads.width, value: 64"))
    file.write_text(f"documents: {{L: another}}\n{file.read_text()}")
    with pytest.raises(DeclarationError, match=r"mine.yaml:4:.*claims\.0\.document: 'T': is not under `documents` \(L\)"):
        load_claims([file])


def test_a_claims_file_is_told_from_a_study(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text("study: mine\nclaims: []\n")
    assert is_claims_file(write(tmp_path, one("is: worked")))
    assert not is_claims_file(study)


def test_stated_and_computed_are_in_one_unit(verdicts: dict[str, CalculatedVerdict]) -> None:
    found = verdicts["T11.3-kv.context-binary"]
    assert found.stated == found.computed == 9 * 2**30
    assert (found.stated_text, found.computed_text) == ("9.0 GiB", "9 GiB")
    assert verdicts["T3.2-ffn.share"].stated == 0.664
    assert verdicts["T3.2-ffn"].to_dict() | {"detail": ""} == {
        "id": "T3.2-ffn",
        "kind": "count",
        "document": "T",
        "section": "3.2, 8.3, 12.1",
        "says": "GPT-3's feed-forward parts hold 116.0 billion parameters",
        "verdict": "supported",
        "stated": 116_000_000_000,
        "computed": 115_964_116_992,
        "detail": "",
    }


def test_every_quantity_has_a_name_and_is_a_whole_number(claims: dict[str, LoadedClaim]) -> None:
    assert set(NAMES) == set(get_args(Quantity))
    gpt2 = claims["L2.3-tied.gpt2"].architectures[0]
    assert all(isinstance(measure(gpt2, quantity=quantity), int) for quantity in NAMES)
    assert measure(gpt2, quantity="kv_cache.bytes", context=10) == 10 * 2 * 12 * 768 * 2


def test_a_ratio_over_nothing_is_the_files_fault(tmp_path: Path) -> None:
    expect = "is: ratio, preset: gpt2, quantity: parameters.total, to: {quantity: parameters.head}, value: 1"
    with pytest.raises(InputError, match="below the line is 0"):
        decide_count(load_claims([write(tmp_path, one(expect))])[0])


@pytest.mark.parametrize(
    ("expect", "said"),
    [
        ("is: count, preset: gtp3, quantity: parameters.total, value: 1", "did you mean 'gpt3'"),
        ("is: count, preset: gpt3, quantity: parameters.totl, value: 1", "is not allowed here"),
        ("is: count, preset: gpt3, quantity: parameters.total", "either `value`"),
        ("is: count, preset: gpt3, quantity: parameters.total, value: 1, low: 2", "either `value`"),
        ("is: count, preset: gpt3, set: {widht: 3}, quantity: parameters.total, value: 1", "did you mean 'width'"),
        ("is: count, preset: gpt3, set: {heads: 7}, quantity: parameters.total, value: 1", "7 heads do not divide"),
        ("is: count, preset: gpt3, set: {learning_rate: 0.1}, quantity: parameters.total, value: 1", "nothing is trained"),
        ("is: count, preset: gpt3, quantity: parameters.total, low: 5, high: 2", "nothing is at least this and at most 2"),
        ("is: count, preset: gpt3, quantity: parameters.total, value: 1, unit: GB", "is printed in one, K, M, B"),
        ("is: count, preset: gpt3, quantity: bytes.weights, value: 1, unit: B", "is printed in one, MB, GB, MiB, GiB"),
        ("is: count, preset: gpt3, quantity: parameters.total, value: 1, unit: '%'", "is printed in one, K, M, B"),
        ("is: ratio, preset: gpt3, quantity: parameters.head, to: {set: {}}, value: 1, unit: GB", "is printed in one, %"),
        (
            "is: count, preset: gpt3, quantity: [parameters.total, kv_cache.bytes], value: 1",
            "numbers and bytes cannot be added",
        ),
        (
            "is: difference, preset: gpt3, quantity: parameters.total, less: {quantity: bytes.weights}, value: 1",
            "numbers and bytes cannot be added",
        ),
        ("is: share, preset: gpt3, quantity: parameters.total, of: {value: 0}, value: 1", "greater than 0"),
        ("is: share, preset: gpt3, quantity: parameters.total, of: {value: 1, unit: GB}, value: 1", "printed in one, K"),
        ("is: worked, step: weights, value: []", "at least 1"),
        ("is: worked, step: weights, value: [[]]", "at least 1"),
        ("is: worked, step: weights, value: [[1], [1, 2]]", "as many numbers"),
        ("is: worked, step: keys_transposed, token: 2, value: [1]", "are units, and not tokens"),
        ("is: identity, property: rows_sum, holds: true", "is not allowed here"),
        ("is: identity, property: rows_are_distributions", "required and missing"),
        ("is: guess, value: 1", "guess"),
    ],
)
def test_what_makes_no_sense_is_reported_at_its_line(tmp_path: Path, expect: str, said: str) -> None:
    with pytest.raises(DeclarationError, match=said) as raised:
        load_claims([write(tmp_path, one(expect))])
    assert all(problem.line == 3 for problem in raised.value.problems)


def test_all_problems_of_all_files_come_at_once_and_an_id_is_used_once(tmp_path: Path) -> None:
    good = one("is: count, preset: gpt2, quantity: heads.width, value: 64")
    bad = one("is: count, preset: none-such, quantity: heads.width, value: 64", name="X2")
    files = [write(tmp_path, good, name="a"), write(tmp_path, good, bad, name="b")]
    with pytest.raises(DeclarationError) as raised:
        load_claims(files)
    assert [problem.path for problem in raised.value.problems] == ["claims.0.id", "claims.1.expect.preset"]


def test_an_id_stands_for_its_readings_and_not_for_its_namesakes(claims: dict[str, LoadedClaim]) -> None:
    def ids(*wanted: str, kinds: tuple = ()) -> list[str]:
        return [item.claim.id for item in choose(tuple(claims.values()), kinds=kinds, ids=wanted)]

    assert ids("T3.2-zero") == ["T3.2-zero", "T3.2-zero.mask"]
    assert ids("T3.2-zero.mask") == ["T3.2-zero.mask"]
    assert ids("T3.2-zero", kinds=("identity",)) == []
    assert len(ids()) == len(claims)
    with pytest.raises(InputError, match=r"no claim 'T3\.2'"):
        ids("T3.2")
