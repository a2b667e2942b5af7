from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from knockout.declare.corpus import Bpe, Corpus, Identity, PythonSource
from knockout.declare.document import read_document
from knockout.declare.generators import Composition, Markov, Recall, WordProblem
from knockout.project import root

PLAIN = {"corpus": "c", "source": {"kind": "python_source"}, "tokenizer": {"kind": "bytes"}}


def corpus(**settings: object) -> Corpus:
    return Corpus.model_validate_json(json.dumps(PLAIN | settings))


def refusal(**settings: object) -> str:
    with pytest.raises(ValidationError) as caught:
        corpus(**settings)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "source", "tokenizer"),
    [
        ("python-source", PythonSource(), Bpe()),
        ("markov", Markov(order=2, alphabet=64), Identity()),
        ("recall", Recall(keys=16, values=16, pairs=4, queries=24, distance=4, documents=61_440), Identity()),
        ("composition", Composition(symbols=16, links=4, hops=2, queries=16, documents=61_440), Identity()),
        ("word-problem", WordProblem(points=5, length=5, words=16, documents=16_384), Identity()),
    ],
)
def test_shipped_declarations_load_and_name_themselves(name, source, tokenizer):
    document = read_document(root() / "data" / f"{name}.yaml")
    shipped = Corpus.model_validate_json(json.dumps(document.data))
    assert (shipped.corpus, shipped.source, shipped.tokenizer) == (name, source, tokenizer)


def test_every_shipped_file_is_a_corpus_under_its_own_name():
    for path in Path(root() / "data").glob("*.yaml"):
        assert Corpus.model_validate_json(json.dumps(read_document(path).data)).corpus == path.stem


def test_defaults_are_five_percent_validation_and_an_exam_of_32768_tokens():
    assert (corpus().validation, corpus().evaluation.tokens, Bpe().sample_bytes) == (0.05, 32_768, 8_000_000)


def test_text_cannot_take_the_identity_tokenizer_nor_a_generator_any_other():
    assert "text takes bpe or bytes" in refusal(tokenizer={"kind": "identity"})
    assert "a generator's tokenizer is identity" in refusal(source={"kind": "markov"})


def test_a_transition_table_that_would_not_fit_is_refused_with_its_size():
    source = {"kind": "markov", "order": 4, "alphabet": 64}
    assert "1,073,741,824 probabilities" in refusal(source=source, tokenizer={"kind": "identity"})


def test_more_pairs_than_keys_are_refused():
    message = refusal(source={"kind": "recall", "keys": 3, "pairs": 4}, tokenizer={"kind": "identity"})
    assert "each pair of a document has a key of its own: at most keys = 3" in message


def test_a_function_that_does_not_fit_its_symbols_is_refused_with_every_reason():
    source = {"kind": "composition", "symbols": 3, "links": 4, "hops": 3}
    message = refusal(source=source, tokenizer={"kind": "identity"})
    assert "at most symbols = 3" in message
    assert "at most half of links = 4: beyond that the way back round the cycle is shorter" in message


@pytest.mark.parametrize(
    "source",
    [{"kind": "recall", "values": 1}, {"kind": "composition", "hops": 0}, {"kind": "word_problem", "points": 2}],
)
def test_a_setting_out_of_its_range_is_refused_by_its_path(source):
    [name] = set(source) - {"kind"}
    assert f"source.{source['kind']}.{name}" in refusal(source=source, tokenizer={"kind": "identity"})


@pytest.mark.parametrize("kind", ["markov", "recall", "composition", "word_problem"])
def test_each_generator_takes_the_identity_tokenizer_alone(kind):
    assert "a generator's tokenizer is identity" in refusal(source={"kind": kind})
    assert corpus(source={"kind": kind}, tokenizer={"kind": "identity"}).source.kind == kind


@pytest.mark.parametrize("validation", [0.0, 1.0, -0.1])
def test_a_validation_share_must_leave_both_sides(validation):
    assert "validation" in refusal(validation=validation)


def test_an_exam_is_cut_into_equal_segments():
    assert "must be a multiple of segments (16)" in refusal(evaluation={"tokens": 1000})


def test_only_text_files_have_a_separator():
    source = {"kind": "files", "paths": ["a"], "format": "jsonl", "separator": "\n\n"}
    assert "only text has one" in refusal(source=source)


def test_unknown_kinds_and_keys_are_refused():
    assert "python_source" in refusal(source={"kind": "python"})
    assert "Extra inputs" in refusal(shuffle=True)
    assert "at least 1 item" in refusal(source={"kind": "files", "paths": []})
