"""Which rows a declared condition keeps, in JSON lines, Parquet and Arrow alike."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROWS: list[dict[str, Any]] = [
    {"text": "zero", "lang": "en", "score": 0.25, "int": 3, "good": True},
    {"text": "one", "lang": "de", "score": 2.0, "int": -1, "good": False},
    {"text": "two", "lang": None, "score": None, "int": None, "good": None},
    {"text": "three", "lang": "", "score": -0.0, "int": 2**40, "good": True},
    {"text": "four", "lang": "en-GB", "score": 1e300, "int": 0, "good": False},
    {"text": "five", "lang": "日本", "score": 0.9, "int": 7, "good": True},
]
LANG, SCORE = "lang", "score"
Row = dict[str, Any]


def has(row: Row, column: str, test: Callable[[Any], bool]) -> bool:
    return row[column] is not None and test(row[column])


CASES: list[tuple[dict[str, Any], Callable[[Row], bool]]] = [
    ({"column": LANG, "is": "equals", "value": "en"}, lambda row: row["lang"] == "en"),
    ({"column": LANG, "is": "equals", "value": ""}, lambda row: row["lang"] == ""),
    ({"column": SCORE, "is": "equals", "value": 0}, lambda row: row["score"] == 0),
    ({"column": "good", "is": "equals", "value": False}, lambda row: row["good"] is False),
    ({"column": "int", "is": "in", "value": [7, 2**40, 1.5]}, lambda row: row["int"] in (7, 2**40)),
    ({"column": LANG, "is": "in", "value": ["de", "日本"]}, lambda row: row["lang"] in ("de", "日本")),
    ({"column": SCORE, "is": "at_least", "value": 0.9}, lambda row: has(row, "score", lambda value: value >= 0.9)),
    ({"column": "int", "is": "at_most", "value": 3}, lambda row: has(row, "int", lambda value: value <= 3)),
    ({"column": LANG, "is": "at_least", "value": "en"}, lambda row: has(row, "lang", lambda value: value >= "en")),
    ({"column": LANG, "is": "contains", "value": "n-"}, lambda row: has(row, "lang", lambda value: "n-" in value)),
    ({"column": LANG, "is": "contains", "value": "."}, lambda row: False),
    ({"column": LANG, "is": "matches", "value": "^(en|de)$"}, lambda row: has(row, "lang", re.compile("^(en|de)$").search)),
    ({"column": "text", "is": "matches", "value": "o|x"}, lambda row: "o" in row["text"]),
    ({"column": SCORE, "is": "not_null"}, lambda row: row["score"] is not None),
    (
        {"is": "not", "of": {"column": SCORE, "is": "at_least", "value": 0}},
        lambda row: not has(row, "score", lambda v: v >= 0),
    ),
    (
        {
            "is": "any",
            "of": [
                {"column": "good", "is": "equals", "value": False},
                {
                    "is": "all",
                    "of": [
                        {"column": SCORE, "is": "at_least", "value": 0.5},
                        {"is": "not", "of": {"column": LANG, "is": "equals", "value": "en"}},
                    ],
                },
            ],
        },
        lambda row: row["good"] is False or (has(row, "score", lambda v: v >= 0.5) and row["lang"] != "en"),
    ),
]


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    (folder / "a.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS))
    table = pa.Table.from_pylist(ROWS)
    pq.write_table(table, folder / "a.parquet")
    coded = table.set_column(1, "lang", table["lang"].dictionary_encode())
    with pa.OSFile(str(folder / "a.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    pq.write_table(coded, folder / "coded.parquet")
    return folder


@pytest.mark.parametrize("case", range(len(CASES)))
def test_a_condition_keeps_the_same_rows_in_every_form(case, stored, read):
    condition, test = CASES[case]
    expected = [row["text"].encode() if test(row) else "filtered" for row in ROWS]
    for name, form in [("a.jsonl", "jsonl"), ("a.parquet", "parquet"), ("coded.parquet", "parquet"), ("a.arrow", "arrow")]:
        found = read({"paths": [name], "format": form, "where": condition}, base=stored)
        assert sorted(map(str, found)) == sorted(map(str, expected)), name


def test_a_number_that_is_none_meets_no_condition(tmp_path, read):
    (tmp_path / "a.jsonl").write_text('{"text": "a", "score": NaN}\n{"text": "b", "score": 1}\n')
    pq.write_table(pa.table({"text": ["a", "b"], "score": [math.nan, 1.0]}), tmp_path / "a.parquet")
    for form in ("jsonl", "parquet"):
        where = {"column": "score", "is": "at_least", "value": 0}
        assert sorted(map(str, read({"paths": ["."], "format": form, "where": where}, base=tmp_path))) == [
            "b'b'",
            "filtered",
        ]


def test_a_number_of_any_size_can_be_compared(tmp_path, read):
    (tmp_path / "a.jsonl").write_text(f'{{"text": "a", "n": {10**400}}}\n{{"text": "b", "n": -{10**400}}}\n')
    where = {"column": "n", "is": "at_least", "value": 0}
    assert read({"paths": ["a.jsonl"], "where": where}, base=tmp_path) == ["filtered", b"a"]


def test_a_whole_number_is_told_from_its_neighbour_up_to_the_largest_that_is_allowed(tmp_path, read):
    values = [2**53 - 2, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": str(v), "id": v}) + "\n" for v in values))
    pq.write_table(pa.table({"text": list(map(str, values)), "id": values}), tmp_path / "a.parquet")
    for form in ("jsonl", "parquet"):
        where = {"column": "id", "is": "equals", "value": 2**53 - 1}
        found = read({"paths": ["."], "format": form, "where": where}, base=tmp_path)
        assert [text for text in found if text != "filtered"] == [str(2**53 - 1).encode()]


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ({"column": "lnag", "is": "equals", "value": "en"}, "did you mean 'lang'?"),
        ({"column": "score", "is": "equals", "value": "en"}, "column 'score' must be text, found"),
        ({"column": "lang", "is": "at_least", "value": 1}, "column 'lang' must be a number, found"),
        ({"column": "int", "is": "equals", "value": True}, "column 'int' must be true or false, found"),
        ({"column": "good", "is": "at_least", "value": 0}, "column 'good' must be a number, found"),
    ],
)
@pytest.mark.parametrize("form", ["jsonl", "parquet", "arrow"])
def test_a_condition_on_a_column_that_does_not_fit_is_refused(condition, reason, form, stored, refusal):
    message = refusal({"paths": [f"a.{form}"], "format": form, "where": condition}, base=stored)
    assert str(stored / f"a.{form}") in message
    assert reason in message


def test_a_filtered_row_is_not_read_further(tmp_path, read):
    (tmp_path / "a.jsonl").write_text('{"text": 5, "keep": false}\n{"text": "a", "keep": true}\n')
    where = {"column": "keep", "is": "equals", "value": True}
    assert read({"paths": ["."], "format": "jsonl", "where": where}, base=tmp_path) == ["filtered", b"a"]
