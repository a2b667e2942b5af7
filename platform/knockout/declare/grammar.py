"""A probabilistic context-free grammar, declared by its rules and words.

The invariant: a grammar that loads is complete, ends with certainty, makes no empty text, and gives each text one
derivation; so its entropy is that of its derivations, which is known exactly. Nothing depends on the order of its rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from knockout.declare.base import Conflict, Declaration, NonNegative, conflicts
from knockout.declare.lr import END, Automaton, NotLR, Rule, automaton
from knockout.declare.problems import nearest

MAX_MEAN_LENGTH = 65_536
"""Most symbols of a document on average, where a declaration's other settings decide it."""
MAX_WORDS = 32_768
MAX_CATEGORIES = 1_000

Documents = Annotated[int, Field(ge=1, le=10_000_000)]
Category = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,79}$")]
Word = Annotated[str, StringConstraints(pattern=r"^[^\s#]{1,80}$")]
Chance = Annotated[float, Field(gt=0.0, le=1.0)]
Alternatives = Annotated[dict[str, Chance], Field(min_length=1)]
Words = Annotated[int, Field(ge=1, le=MAX_WORDS)] | Annotated[dict[Word, Chance], Field(min_length=1)]


class Grammar(Declaration):
    """A probabilistic context-free grammar: a document is one derivation of its start."""

    kind: Literal["grammar"] = "grammar"
    start: Category
    """The category that every document is."""
    rules: Annotated[dict[Category, Alternatives], Field(min_length=1)]
    """For each category what it may be replaced by, categories with a space between, and how likely each is."""
    words: Annotated[dict[Category, Words], Field(min_length=1)]
    """For each category of words how many there are, equally likely, or how likely each is; several may share a word."""
    seed: NonNegative = 0
    """Draws the documents."""
    documents: Documents = 32_768
    """Number of documents."""

    @property
    def lexicon(self) -> tuple[str, ...]:
        """Every word by its number: of each category in order those that are counted, as `noun#3`, then the named ones."""
        counted = [f"{name}#{i}" for name in self.categories if isinstance(n := self.words[name], int) for i in range(n)]
        return (*counted, *sorted({word for words in self.words.values() if isinstance(words, dict) for word in words}))

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories of words, in alphabetical order: what a word is labelled with."""
        return tuple(sorted(self.words))

    @property
    def alphabet(self) -> int:
        """Number of different words."""
        return len(self.lexicon)

    def chances(self, category: str) -> dict[str, float]:
        """How likely each word of a category is, in the order of the words."""
        words = self.words[category]
        if isinstance(words, int):
            return {f"{category}#{i}": 1.0 / words for i in range(words)}
        return {word: words[word] for word in sorted(words)}

    def alternatives(self, category: str) -> dict[tuple[str, ...], float]:
        """What a category may be replaced by, and how likely each is, in alphabetical order."""
        rules = self.rules[category]
        return {tuple(text.split()): rules[text] for text in sorted(rules)}

    @property
    def word_classes(self) -> dict[str, str]:
        """For each word its class, named after the categories that share it: all that decides how a text is parsed."""
        sharing: dict[str, list[str]] = {}
        for name in self.categories:
            for word in self.chances(name):
                sharing.setdefault(word, []).append(name)
        return {word: f"word:{'/'.join(names)}" for word, names in sharing.items()}

    def parser(self) -> Automaton:
        """The automaton that derives a text's words, given as their classes, in the one way that there is."""
        found = _automaton(_rules(self), start=self.start)
        assert isinstance(found, Automaton), "a grammar that has none does not load"
        return found

    @model_validator(mode="after")
    def _is_a_grammar(self) -> Grammar:
        conflicts("Grammar", list(_incomplete(self)))
        conflicts("Grammar", list(_improper(self)))
        return self


def mean_lengths(source: Grammar) -> dict[str, float] | str:
    """Words that each category comes to on average; the name of one whose derivation is not sure to end, if there is one.

    With M the mean number of each category in another's rules, they are (I - M)^-1 times the mean number of words in them. A
    derivation ends with a finite mean exactly when M's spectral radius is under 1 (Booth and Thompson, "Applying probability
    measures to abstract languages", 1973), and that exactly when elimination without exchange finds I - M's pivots above 0
    (Berman and Plemmons, "Nonnegative matrices in the mathematical sciences", 1994, theorem 6.2.3).
    """
    names = sorted(source.rules)
    place = {name: index for index, name in enumerate(names)}
    rows = [[float(row == column) for column in range(len(names))] + [0.0] for row in range(len(names))]
    for row, name in enumerate(names):
        for symbols, chance in source.alternatives(name).items():
            for symbol in symbols:
                rows[row][place.get(symbol, -1)] += -chance if symbol in place else chance
    failed = _eliminate(rows)
    return {name: row[-1] for name, row in zip(names, rows, strict=True)} if failed is None else names[failed]


def _eliminate(rows: list[list[float]]) -> int | None:
    """Solve in place, the last column being the right side; the place of a pivot that is not above 0, if there is one."""
    for place, pivot in enumerate(rows):
        if pivot[place] < 1e-9:
            return place
        rows[place] = pivot = [value / pivot[place] for value in pivot]
        for other, row in enumerate(rows):
            if other != place and (factor := row[place]):
                rows[other] = [mine - factor * theirs for mine, theirs in zip(row, pivot, strict=True)]
    return None


def _incomplete(source: Grammar) -> Iterator[Conflict]:
    """Names that stand for nothing, twice or unused."""
    known = {*source.rules, *source.words}
    if source.start not in source.rules:
        yield "start", source.start, f"must be one of rules: {', '.join(sorted(source.rules))}"
    for name in sorted(set(source.rules) & set(source.words)):
        yield f"words.{name}", name, "has rules too: a category has either rules or words"
    for name in sorted(source.rules):
        for symbol in sorted({symbol for symbols in source.alternatives(name) for symbol in symbols} - known):
            yield f"rules.{name}", symbol, f"has neither rules nor words{nearest(symbol, sorted(known))}"
    reached = _reached(source)
    for name in sorted(known - reached):
        yield f"{'rules' if name in source.rules else 'words'}.{name}", name, f"no derivation of {source.start} comes to it"
    if len(known) > MAX_CATEGORIES:
        yield "rules", len(known), f"at most {MAX_CATEGORIES:,} categories altogether"
    if source.alphabet > MAX_WORDS:
        yield "words", source.alphabet, f"at most {MAX_WORDS:,} different words"


def _reached(source: Grammar) -> set[str]:
    reached, waiting = {source.start}, [source.start]
    while waiting:
        name = waiting.pop()
        symbols = {symbol for row in source.rules.get(name, {}) for symbol in row.split()}
        waiting += sorted(symbols - reached)
        reached |= symbols
    return reached


def _improper(source: Grammar) -> Iterator[Conflict]:
    """Probabilities that are none, derivations that do not end or come to nothing, texts with two of them."""
    sums = {f"rules.{name}": sum(alternatives.values()) for name, alternatives in sorted(source.rules.items())}
    words = {name: chances for name, chances in sorted(source.words.items()) if isinstance(chances, dict)}
    sums |= {f"words.{name}": sum(chances.values()) for name, chances in words.items()}
    wrong = {path: total for path, total in sums.items() if abs(total - 1.0) > 1e-9}
    yield from (
        (path, round(total, 9), "is what its probabilities add up to; it must be 1") for path, total in wrong.items()
    )
    if wrong:
        return
    found = mean_lengths(source)
    if isinstance(found, str):
        yield f"rules.{found}", found, "on average comes back at least once: a derivation is not sure to end; lower that"
    elif found[source.start] > MAX_MEAN_LENGTH:
        rule = f"a document would have {found[source.start]:,.0f} words on average, of which {MAX_MEAN_LENGTH:,} fit"
        yield "start", source.start, rule
    parsed = _automaton(_rules(source), start=source.start)
    if isinstance(parsed, NotLR):
        yield "rules", source.start, parsed.reason
    elif END in parsed.reductions[0]:
        yield "start", source.start, "may come to nothing: a document has at least one word"


def _rules(source: Grammar) -> tuple[Rule, ...]:
    """The grammar with classes of words for terminals."""
    rules = [(name, symbols) for name in sorted(source.rules) for symbols in source.alternatives(name)]
    classes = source.word_classes
    words = {(name, (classes[word],)) for name in source.categories for word in source.chances(name)}
    return (*rules, *sorted(words))


@cache
def _automaton(rules: tuple[Rule, ...], *, start: str) -> Automaton | NotLR:
    return automaton(rules, start=start)
