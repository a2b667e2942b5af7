"""Whether a grammar can be parsed from left to right with one symbol of look-ahead, which no ambiguous grammar can.

The invariant: an automaton is returned exactly when the grammar is LR(1); then each string has one derivation at most
(Knuth, "On the translation of languages from left to right", 1965, section II). The converse does not hold: some grammars
that are not ambiguous are not LR(1), and no procedure tells them all.

The states are Knuth's sets of items: a rule, how much of it was read, and the terminal that may follow it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

END = "$"
"""Follows the last symbol of a string; no category has this name."""
MAX_STATES = 5_000

Rule = tuple[str, tuple[str, ...]]
"""A category, and what it may be replaced by."""
Item = tuple[int, int, str]
"""Number of a rule, symbols of it that were read, and the terminal after it."""
Items = frozenset[Item]


@dataclass(frozen=True)
class Automaton:
    """For each state: where symbols lead, and by which rule a finished category is told before each terminal."""

    shifts: tuple[Mapping[str, int], ...]
    reductions: tuple[Mapping[str, Rule], ...]


@dataclass(frozen=True)
class NotLR:
    """Why there is no automaton."""

    reason: str


def automaton(rules: tuple[Rule, ...], *, start: str) -> Automaton | NotLR:
    """The canonical LR(1) automaton of a grammar whose terminals are the symbols that no rule replaces."""
    grammar = _Grammar.of(((END, (start,)), *rules))
    first = grammar.closed([(0, 0, END)])
    states: dict[Items, int] = {first: 0}
    paths: list[tuple[str, ...]] = [()]
    shifts: list[dict[str, int]] = []
    reductions: list[dict[str, Rule]] = []
    for items in (waiting := [first]):
        path = paths[states[items]]
        shifts.append({})
        for symbol, moved in grammar.moves(items).items():
            if moved not in states:
                states[moved] = len(states)
                waiting.append(moved)
                paths.append((*path, symbol))
            shifts[-1][symbol] = states[moved]
        found = grammar.reductions(items, shifts=shifts[-1], path=path)
        if isinstance(found, NotLR):
            return found
        reductions.append(found)
        if len(states) > MAX_STATES:
            return NotLR(f"too large: that each string has one derivation is checked up to {MAX_STATES:,} states")
    return Automaton(tuple(shifts), tuple(reductions))


@dataclass(frozen=True)
class _Grammar:
    rules: tuple[Rule, ...]
    by_category: Mapping[str, tuple[int, ...]]
    firsts: Mapping[str, frozenset[str]]
    """Terminals that a category can begin with; the empty text where it can be replaced by nothing."""

    @classmethod
    def of(cls, rules: tuple[Rule, ...]) -> _Grammar:
        by_category: dict[str, tuple[int, ...]] = {}
        for number, (category, _) in enumerate(rules):
            by_category[category] = (*by_category.get(category, ()), number)
        return cls(rules, by_category, _firsts(rules))

    def closed(self, items: Iterable[Item]) -> Items:
        """The items, and those that begin where one of them goes on."""
        found = set(items)
        waiting = list(found)
        while waiting:
            number, read, after = waiting.pop()
            symbols = self.rules[number][1]
            if read == len(symbols):
                continue
            following = _first_of(symbols[read + 1 :], after=after, firsts=self.firsts)
            for begun in self.by_category.get(symbols[read], ()):
                new = {(begun, 0, terminal) for terminal in following} - found
                found |= new
                waiting += new
        return frozenset(found)

    def moves(self, items: Items) -> dict[str, Items]:
        """Where each symbol leads, in the order of the symbols."""
        kernels: dict[str, list[Item]] = {}
        for number, read, after in items:
            if read < len(symbols := self.rules[number][1]):
                kernels.setdefault(symbols[read], []).append((number, read + 1, after))
        return {symbol: self.closed(kernels[symbol]) for symbol in sorted(kernels)}

    def reductions(self, items: Items, *, shifts: Mapping[str, int], path: tuple[str, ...]) -> dict[str, Rule] | NotLR:
        """The rule that is finished before each terminal, unless there are two ways on."""
        found: dict[str, Rule] = {}
        for number, read, after in sorted(items):
            rule = self.rules[number]
            if read < len(rule[1]):
                continue
            if after in found or after in shifts:
                first, second = (found[after], f"{_shown(rule)} does") if after in found else (rule, "one goes on")
                return NotLR(
                    f"not LR(1), so that a text may have two derivations: after '{_words(path)}' and before "
                    f"{_word(after)} either {_shown(first)} ends or {second}"
                )
            found[after] = rule
        return found


def _firsts(rules: tuple[Rule, ...]) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {category: frozenset() for category, _ in rules}
    grows = True
    while grows:
        grows = False
        for category, symbols in rules:
            more = found[category] | _first_of(symbols, after="", firsts=found)
            grows |= more != found[category]
            found[category] = more
    return found


def _first_of(symbols: tuple[str, ...], *, after: str, firsts: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Terminals that a row of symbols can begin with, and `after` where it can be empty."""
    found: frozenset[str] = frozenset()
    for symbol in symbols:
        begins = firsts.get(symbol, frozenset({symbol}))
        found |= begins - {""}
        if "" not in begins:
            return found
    return found | {after}


def _shown(rule: Rule) -> str:
    return f"{rule[0]} = {_words(rule[1]) or 'nothing'}"


def _words(symbols: tuple[str, ...]) -> str:
    return " ".join(map(_word, symbols))


def _word(symbol: str) -> str:
    return "the end" if symbol == END else symbol
