from __future__ import annotations

import json
import random
from collections import Counter
from itertools import product

import pytest
from pydantic import ValidationError

from knockout.declare.grammar import Grammar, mean_lengths
from knockout.declare.lr import Automaton, NotLR, Rule, automaton

PLAIN = {"start": "s", "rules": {"s": {"a s": 0.5, "b": 0.5}}, "words": {"a": 2, "b": {"x": 1.0}}}


def grammar(**settings: object) -> Grammar:
    return Grammar.model_validate_json(json.dumps(PLAIN | settings))


def refusal(**settings: object) -> str:
    with pytest.raises(ValidationError) as caught:
        grammar(**settings)
    return str(caught.value)


def test_words_are_numbered_counted_ones_first_and_shared_ones_once():
    source = grammar(rules={"s": {"a b c": 1.0}}, words={"c": {"y": 0.5, "x": 0.5}, "a": 2, "b": {"x": 1.0}})
    assert source.lexicon == ("a#0", "a#1", "x", "y")
    assert (source.alphabet, source.categories) == (4, ("a", "b", "c"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"start": "t"}, "must be one of rules: s"),
        (
            {"rules": {"s": {"a noum": 1.0}}, "words": {"a": 1, "noun": 1}},
            "has neither rules nor words; did you mean 'noun'?",
        ),
        ({"words": {"a": 2, "b": 1, "c": 1}}, "no derivation of s comes to it"),
        ({"rules": {"s": {"a b": 1.0}, "a": {"b": 1.0}}}, "has rules too"),
        ({"rules": {"s": {"a s": 0.5, "b": 0.4}}}, "must be 1"),
        ({"words": {"a": {"x": 0.5, "y": 0.4}, "b": 1}}, "must be 1"),
        ({"rules": {"s": {"": 0.5, "a b": 0.5}}}, "may come to nothing"),
        ({"rules": {"s": {"t t": 1.0}, "t": {"": 0.5, "a b": 0.5}}}, "may have two derivations"),
        ({"rules": {"s": {"a s": 0.99999, "b": 0.00001}}}, "100,000 words on average"),
    ],
)
def test_what_is_no_grammar_is_refused_with_the_reason(settings, message):
    assert message in refusal(**settings)


@pytest.mark.parametrize(("again", "ends"), [(0.4, True), (0.5, False), (0.6, False)])
def test_a_derivation_must_end_with_certainty_and_a_finite_mean(again, ends):
    # s -> ( s s ) with p, else x: a branching process of mean 2p (Harris, "The theory of branching processes", 1963)
    settings = {
        "rules": {"s": {"o s s c": again, "x": 1 - again}},
        "words": {"o": {"(": 1.0}, "c": {")": 1.0}, "x": {"x": 1.0}},
    }
    if ends:
        found = mean_lengths(grammar(**settings))
        assert found == pytest.approx({"s": (2 * again + 1 - again) / (1 - 2 * again)})
    else:
        assert "a derivation is not sure to end" in refusal(**settings)


def test_a_category_that_leads_only_to_itself_is_refused():
    assert "not sure to end" in refusal(rules={"s": {"b": 0.5, "a t": 0.5}, "t": {"b t": 1.0}})


@pytest.mark.parametrize(
    "rules",
    [
        {"s": {"s s": 0.2, "a": 0.4, "b": 0.4}},
        {"s": {"np vp": 1.0}, "np": {"a": 0.6, "np pp": 0.4}, "vp": {"b np": 0.5, "vp pp": 0.5}, "pp": {"b np": 1.0}},
        {"s": {"a s": 0.3, "a s b s": 0.3, "b": 0.4}},
        {"s": {"t": 0.5, "a": 0.5}, "t": {"a": 0.5, "b": 0.5}},
    ],
    ids=["binary", "attachment", "dangling else", "two names"],
)
def test_an_ambiguous_grammar_is_refused(rules):
    assert "not LR(1), so that a text may have two derivations" in refusal(rules=rules)


def test_a_word_of_two_categories_is_refused_only_where_its_place_does_not_tell_them_apart():
    words = {"a": {"x": 1.0}, "b": {"x": 0.5, "y": 0.5}}
    assert grammar(rules={"s": {"a b": 1.0}}, words=words).alphabet == 2
    message = refusal(rules={"s": {"a": 0.5, "b": 0.5}}, words=words)
    assert "before the end either a = word:a/b ends or b = word:a/b does" in message


def rules_of(text: str) -> tuple[Rule, ...]:
    return tuple((line.split("=")[0].strip(), tuple(line.split("=")[1].split())) for line in text.split(";"))


@pytest.mark.parametrize(
    ("text", "is_lr"),
    [
        ("S = a E c; S = a F d; S = b F c; S = b E d; E = e; F = e", True),
        ("S = L = R; S = R; L = * R; L = i; R = L".replace("L = R", "L eq R"), True),
        ("S = A b b; S = B b c; A = a; B = a", False),
        ("S = a S a; S = b S b; S =", False),
        ("S = a S b; S =", True),
        ("S = S a; S = a", True),
    ],
    ids=["LR(1) but not LALR(1)", "not SLR(1)", "LR(2)", "palindromes", "a^n b^n", "left recursion"],
)
def test_the_textbooks_grammars_are_told_apart(text, is_lr):
    # Aho, Lam, Sethi and Ullman, "Compilers" (2006), sections 4.6 and 4.7
    assert isinstance(automaton(rules_of(text), start="S"), Automaton if is_lr else NotLR)


def derivations(rules: tuple[Rule, ...], text: tuple[str, ...]) -> int:
    """How many derivations a text has, where no rule is empty or goes round in circles: by the lengths of its parts."""
    counts: Counter[tuple[str, int, int]] = Counter()
    units = [rule for rule in rules if len(rule[1]) == 1]
    for length in range(1, len(text) + 1):
        for first in range(len(text) - length + 1):
            end = first + length
            for category, symbols in rules:
                if len(symbols) == 2:
                    left, right = symbols
                    parts = range(first + 1, end)
                    found = sum(
                        _count(counts, left, first, cut, text) * _count(counts, right, cut, end, text) for cut in parts
                    )
                    counts[category, first, end] += found
            for category, (symbol,) in sorted(units, reverse=True):
                counts[category, first, end] += _count(counts, symbol, first, end, text)
    return counts["A", 0, len(text)]


def _count(counts: Counter[tuple[str, int, int]], symbol: str, first: int, end: int, text: tuple[str, ...]) -> int:
    return int(text[first:end] == (symbol,)) if symbol.islower() else counts[symbol, first, end]


def test_no_grammar_with_an_automaton_gives_a_text_two_derivations():
    dice = random.Random(5)
    units = [(left, (right,)) for left, right in ["AB", "AC", "BC", "Aa", "Ab", "Ba", "Bb", "Ca", "Cb"]]
    pairs = [(left, (one, two)) for left in "ABC" for one in "ABCab" for two in "ABCab"]
    texts = [text for length in range(1, 6) for text in product("ab", repeat=length)]
    kept = ambiguous = 0
    for _ in range(250):
        rules = tuple(sorted({*dice.sample(units, 3), *dice.sample(pairs, 3)}))
        most = max(derivations(rules, text) for text in texts)
        is_lr = isinstance(automaton(rules, start="A"), Automaton)
        kept += is_lr and most == 1
        ambiguous += most > 1
        assert most <= 1 or not is_lr
    assert (kept > 20, ambiguous > 20) == (True, True), (kept, ambiguous)
