from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from pydantic import ValidationError

from knockout.declare.corpus import Bpe, Corpus, Identity, PythonSource
from knockout.declare.corpus_schema import corpus_schema
from knockout.declare.document import parse_document, read_document
from knockout.declare.generators import Composition, Copy, Dyck, Markov, Recall, UniformLength, WordProblem
from knockout.declare.load import validate
from knockout.declare.text_sources import HuggingFace
from knockout.errors import DeclarationError
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
        ("copy", Copy(symbols=32, length=UniformLength(least=8, most=48), documents=61_440), Identity()),
        ("dyck", Dyck(brackets=8, depth=4, opens=0.5, groups=16.0, documents=27_648), Identity()),
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


def test_lengths_of_strings_in_the_wrong_order_are_refused():
    source = {"kind": "copy", "length": {"kind": "uniform", "least": 9, "most": 8}}
    assert "the longest is at least the shortest, 9" in refusal(source=source, tokenizer={"kind": "identity"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"depth": None, "opens": 0.5}, "below 0.5 where depth has no bound"),
        ({"depth": 40, "opens": 0.9}, "symbols on average, of which 65,536 fit: lower opens, depth or groups"),
        ({"depth": 65_536, "opens": 0.999}, "a document would have inf symbols on average"),
    ],
)
def test_brackets_that_would_not_close_in_time_are_refused(settings, message):
    assert message in refusal(source={"kind": "dyck", **settings}, tokenizer={"kind": "identity"})


@pytest.mark.parametrize(
    "source",
    [
        {"kind": "recall", "values": 1},
        {"kind": "composition", "hops": 0},
        {"kind": "word_problem", "points": 2},
        {"kind": "copy", "symbols": 1},
        {"kind": "dyck", "opens": 1.0},
    ],
)
def test_a_setting_out_of_its_range_is_refused_by_its_path(source):
    [name] = set(source) - {"kind"}
    assert f"source.{source['kind']}.{name}" in refusal(source=source, tokenizer={"kind": "identity"})


@pytest.mark.parametrize("kind", ["markov", "recall", "composition", "word_problem", "copy", "dyck"])
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


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("tinystories", HuggingFace(dataset="roneneldan/TinyStories")),
        ("wikitext-103", HuggingFace(dataset="Salesforce/wikitext", config="wikitext-103-raw-v1")),
        ("fineweb-edu", HuggingFace(dataset="HuggingFaceFW/fineweb-edu", config="sample-10BT")),
        ("openwebtext", HuggingFace(dataset="Skylion007/openwebtext")),
        ("chinese-wikipedia", HuggingFace(dataset="wikimedia/wikipedia", config="20231101.zh")),
    ],
)
def test_shipped_data_sets_of_the_hub_are_their_training_texts(name, source):
    shipped = Corpus.model_validate_json(json.dumps(read_document(root() / "data" / f"{name}.yaml").data))
    assert shipped.source == source
    assert shipped.tokenizer.kind == "bpe"


CONDITION = (
    "{is: all, of: [{column: lang, is: in, value: [en, de]}, "
    "{is: not, of: {is: any, of: [{column: score, is: at_most, value: 0.5}, {column: url, is: matches, value: '^http:'}]}}]}"
)


def told(source: str) -> str:
    with pytest.raises(DeclarationError) as caught:
        validate(parse_document(f"corpus: c\ntokenizer: {{kind: bytes}}\nsource: {source}\n", file="c.yaml"), model=Corpus)
    return str(caught.value)


def test_a_condition_is_written_back_as_it_was_read():
    text = f"corpus: c\ntokenizer: {{kind: bytes}}\nsource: {{kind: files, paths: [a], format: jsonl, where: {CONDITION}}}"
    found = validate(parse_document(text, file="c.yaml"), model=Corpus)
    assert Corpus.model_validate_json(found.model_dump_json()) == found
    assert '"at_most"' in found.model_dump_json()


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("{column: a, is: equal, value: 1}", "c.yaml:3:50: source.where: 'equal' is not"),
        ("{column: a, is: equal, value: 1}", "did you mean 'equals'?"),
        ("{column: a, value: 1}", "needs a key is that says which"),
        ("{column: a, is: matches, value: '(a'}", "source.where.value: '(a' is not a regular expression"),
        ("{column: a, is: matches, value: '(a)\\1'}", "backreferences are not supported"),
        ("{column: a, is: matches, value: 'a{1000}{1000}{100}'}", "exceeds size limit"),
        ("{is: any, of: []}", "source.where.of: [] "),
        ("{column: a, is: in, value: [1, x]}", "must be all text or all numbers"),
        ("{column: a, is: equals, value: 9007199254740992}", "must be a number from"),
        (
            "{is: any, of: [{column: a, is: equals, value: x}, {column: a, is: at_least, value: 1}]}",
            "with text and with number",
        ),
    ],
)
def test_a_condition_that_cannot_be_asked_is_refused_at_its_place(where, reason):
    message = told(f"{{kind: files, paths: [a], format: jsonl, where: {where}}}")
    assert reason in message
    assert len(message.splitlines()) == 1


def test_everything_that_a_format_has_no_use_for_is_refused_at_once():
    settings = "column: body, where: {column: a, is: not_null}, malformed: skip"
    message = told(f"{{kind: files, paths: [a], format: text, {settings}}}")
    assert "source.column: 'body': text has no columns" in message
    assert "source.where: 'not_null': text has no columns to choose by" in message
    assert "source.malformed: 'skip': only a line of JSON can be so" in message
    assert told(f"{{kind: files, paths: [a.txt, 'b/*.md'], {settings}}}") == message


def test_one_path_needs_no_list_and_a_format_no_word_where_the_paths_leave_no_doubt():
    assert corpus(source={"kind": "files", "paths": "a.jsonl"}) == corpus(source={"kind": "files", "paths": ["a.jsonl"]})
    assert "only text has one; format is jsonl" in told("{kind: files, paths: '*.jsonl.zst', separator: x}")
    assert "only a line of JSON can be so; format is parquet" in told("{kind: files, paths: a.PARQUET, malformed: skip}")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{kind: files, paths: [a], format: jsonl, where: score >= 3}", "a key `is` that says which (equals, in"),
        ("{kind: files, paths: [a], format: jsonl, where: not_nul}", "must be a mapping: write {is: not_null}"),
        ("{kind: files, paths: []}", "source.paths: [] must have at least 1 item, has 0"),
        ("{kind: files, paths: ['']}", "source.paths.0: '' must not be empty"),
        ("{kind: files, paths: 3}", "source.paths: 3 should be a list"),
        ("{kind: files, paths: [a], unicode: NFC}", "did you mean 'nfc'?"),
        ("{kind: mixture, sources: [{name: a, share: 1, source: {kind: python_source}}]}", "at least 2 items, has 1"),
        ("{kind: mixture, sources: [{name: a, weight: 1, source: {kind: python_source}}]}", "did you mean 'share'?"),
        ("{kind: files, paths: [a], format: jsonl, where: {column: b, is: matches, pattern: x}}", "did you mean 'value'?"),
    ],
)  # fmt: skip
def test_a_slip_is_told_in_the_words_of_the_file(source, reason):
    message = told(source)
    assert reason in message
    assert "valid" not in message


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{kind: files, paths: [ok, 'ftp://x/a']}", "source.paths.1: 'ftp://x/a': is not an address that can be read"),
        ("{kind: hugging_face, dataset: a/b/c}", "source.dataset: 'a/b/c': must be owner/name"),
        ("{kind: hugging_face, dataset: a/b, config: '../x'}", "source.config: '../x': must be the name of a configuration"),
        ("{kind: hugging_face, dataset: a/b, columns: x}", "did you mean 'column'?"),
    ],
)
def test_an_address_or_a_name_that_cannot_be_one_is_refused(source, reason):
    assert reason in told(source)


def test_a_separator_is_of_the_text_whose_lines_end_in_a_line_feed():
    assert "write \\n for the end of a line" in refusal(source={"kind": "files", "paths": ["a"], "separator": "\r\n"})


PART = "{name: %s, share: %s, source: %s}"


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([PART % ("a", 1, "{kind: python_source}")], "source.sources: "),
        ([PART % (name, 1, "{kind: python_source}") for name in "aba"], "source.sources.2.name: 'a': another source"),
        ([PART % ("a", 1, "{kind: python_source}"), PART % ("b", 0, "{kind: python_source}")], "source.sources.1.share: 0 "),
        ([PART % ("a", 1, "{kind: python_source}"), PART % ("b", 1, "{kind: markov}")], "'markov' is not a source"),
    ],
)
def test_a_mixture_has_several_sources_of_text_with_names_and_shares(parts, reason):
    assert reason in told(f"{{kind: mixture, sources: [{', '.join(parts)}]}}")


def test_the_schema_accepts_what_is_shipped_and_refuses_an_unknown_condition():
    schema = jsonschema.Draft202012Validator(corpus_schema())
    for path in Path(root() / "data").glob("*.yaml"):
        schema.validate(read_document(path).data)
    where = {"is": "not", "of": {"column": "a", "is": "at_leas", "value": 1}}
    plain = PLAIN | {"source": {"kind": "files", "paths": ["a"], "format": "jsonl", "where": where}}
    assert not schema.is_valid(plain)
    where["of"]["is"] = "at_least"
    assert schema.is_valid(plain)
