"""Probabilistic context-free grammars: texts with a structure that is known.

The invariant: a text is drawn rule by rule, each as likely as declared, and has no other derivation (the declaration is
refused otherwise); so `nats`, the entropy of derivations, is that of texts, and the least loss that any model can expect.

With the rules s = a s (1/2) | b (1/2), and the words a = {x: 1, y: 1} (counted), b = {z: 1.0}, a document is drawn so ($ is
end-of-text, which the encoder puts in):

    derivation   s → a s → y s → y a s → y x s → y x b → y x z
    token        y          x          z        $
    label        a          a          b
    chance    1/2 · 1/2  1/2 · 1/2    1/2       1

The floor: with M the mean number of each category in another's rules and h the entropy of each category's choice of a rule
or word, the entropy of derivations is (I - M)^-1 h at the start, and the mean length the same with 1 for words in place of h
(Grenander, "Syntax-controlled probabilities", 1967; Soule, "Entropies of probabilistic grammars", 1974; Chi, "Statistical
properties of probabilistic context-free grammars", 1999). What the true model predicts at each place are quotients of prefix
probabilities (Jelinek and Lafferty, "Computation of the probability of initial substring generation by stochastic
context-free grammars", 1991).

Words are numbered as in the declaration's lexicon.

Shapes: D documents, N words of all of them, S symbols that wait on a stack.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from knockout.corpus.generators.drawing import DOCUMENTS, Ladder, by_document, groups, stream
from knockout.declare.grammar import Grammar, mean_lengths
from knockout.declare.lr import END, Automaton
from knockout.errors import CorpusError


def documents(source: Grammar) -> Iterator[np.ndarray]:
    """The documents, int64 [length of each]."""
    tables = _Tables(source)
    for group, count in enumerate(groups(source.documents, length=math.ceil(mean_length(source)))):
        yield from tables.generate(stream(source.seed, purpose=DOCUMENTS, part=group), count=count)


def mean_length(source: Grammar) -> float:
    """Words in a document on average.

    Raises:
        ValueError: it is not finite, which no grammar that loads is.
    """
    if isinstance(found := mean_lengths(source), str):
        raise ValueError(f"{found}: a derivation is not sure to end")
    return found[source.start]


def nats(source: Grammar) -> float:
    """Entropy of a document: of the rules and words that derive it."""
    return _Tables(source).entropy()


def labels(source: Grammar, *, tokens_N: np.ndarray) -> np.ndarray:
    """The category that each token came from, as its place in `source.categories`, int64 [N]; -1 for end-of-text.

    The tokens are those of whole documents, each followed by end-of-text, as a split holds them. Each document is derived
    anew in the one way that there is.

    Raises:
        CorpusError: one of them is no document of the grammar, or is cut.
    """
    parser, classes = source.parser(), source.word_classes
    numbers = {name: number for number, name in enumerate(source.categories)}
    terminals = [*(classes[word] for word in source.lexicon), END]
    found: list[int] = []
    states = [0]
    for place, token in enumerate(tokens_N.tolist()):
        terminal = terminals[token] if 0 <= token < len(terminals) else ""
        found += [numbers[name] for name in _finished(parser, states=states, terminal=terminal) if name in numbers]
        if terminal == END and END in parser.reductions[states[-1]]:
            found.append(-1)
            states = [0]
        elif (state := parser.shifts[states[-1]].get(terminal)) is not None:
            states.append(state)
        else:
            raise CorpusError(f"token {place:,} of the text is {token}: no derivation of {source.start} goes on so")
    if len(states) > 1:
        raise CorpusError(f"the text ends within a document: its {len(tokens_N):,} tokens must end with end-of-text")
    return np.array(found, np.int64)


def _finished(parser: Automaton, *, states: list[int], terminal: str) -> Iterator[str]:
    """The categories that are finished before a terminal, while the stack of states follows."""
    while (rule := parser.reductions[states[-1]].get(terminal)) is not None and rule[0] != END:
        category, replaced = rule
        del states[len(states) - len(replaced) :]
        states.append(parser.shifts[states[-1]][category])
        yield category


class _Tables:
    """The declaration as arrays: categories with rules come first, then those of words."""

    def __init__(self, source: Grammar) -> None:
        ruled = sorted(source.rules)
        self.num_ruled = len(ruled)
        self.numbers = {name: number for number, name in enumerate([*ruled, *source.categories])}
        self.start = self.numbers[source.start]
        self.chances = [list(source.alternatives(name).values()) for name in ruled]
        self.chances += [list(source.chances(name).values()) for name in source.categories]
        self.ladder = Ladder.of(self.chances)
        replaced = [[self.numbers[symbol] for symbol in row] for name in ruled for row in source.alternatives(name)]
        self.lengths_R = np.array([len(row) for row in replaced])
        self.reversed_RS = np.array([_padded(row[::-1], length=int(self.lengths_R.max())) for row in replaced])
        by_word = {word: number for number, word in enumerate(source.lexicon)}
        self.words_W = np.array([by_word[word] for name in source.categories for word in source.chances(name)])

    def entropy(self) -> float:
        """Nats of a derivation of the start, (I - M)^-1 h."""
        own_C = np.array([-math.fsum(p * math.log(p) for p in row) for row in self.chances])
        means_CC = np.zeros((len(own_C), len(own_C)))
        chances_R = np.array([chance for row in self.chances[: self.num_ruled] for chance in row])
        rows_R = np.repeat(np.arange(self.num_ruled), [len(row) for row in self.chances[: self.num_ruled]])
        for place in range(self.reversed_RS.shape[1]):
            here = self.lengths_R > place
            np.add.at(means_CC, (rows_R[here], self.reversed_RS[here, place]), chances_R[here])
        return float(np.linalg.solve(np.eye(len(own_C)) - means_CC, own_C)[self.start])

    def generate(self, random: np.random.Generator, *, count: int) -> list[np.ndarray]:
        """Some documents: of each the symbol on top of its stack is replaced, step by step, until none is left."""
        stacks = _Stacks.of(count, start=self.start)
        alive_D = np.arange(count)
        whose: list[np.ndarray] = []
        words: list[np.ndarray] = []
        while len(alive_D):
            tops_D = stacks.pop(alive_D)
            drawn_D = self.ladder.draw(random, rows_N=tops_D)
            ruled_D = tops_D < self.num_ruled
            whose.append(alive_D[~ruled_D])
            words.append(self.words_W[drawn_D[~ruled_D] - len(self.lengths_R)])
            rules = drawn_D[ruled_D]
            stacks.push(alive_D[ruled_D], symbols_DS=self.reversed_RS[rules], lengths_D=self.lengths_R[rules])
            alive_D = alive_D[stacks.heights_D[alive_D] > 0]
        return by_document(np.concatenate(words), documents_N=np.concatenate(whose), count=count)


@dataclass(eq=False)
class _Stacks:
    """What each document is still to be made of, the next symbol on top."""

    symbols_DS: np.ndarray
    heights_D: np.ndarray

    @classmethod
    def of(cls, count: int, *, start: int) -> _Stacks:
        return cls(np.full((count, 1), start, np.int32), np.ones(count, np.int64))

    def pop(self, documents_D: np.ndarray) -> np.ndarray:
        self.heights_D[documents_D] -= 1
        return self.symbols_DS[documents_D, self.heights_D[documents_D]]

    def push(self, documents_D: np.ndarray, *, symbols_DS: np.ndarray, lengths_D: np.ndarray) -> None:
        firsts_D = self.heights_D[documents_D]
        self.heights_D[documents_D] += lengths_D
        if (missing := int(self.heights_D.max()) - self.symbols_DS.shape[1]) > 0:
            self.symbols_DS = np.pad(self.symbols_DS, ((0, 0), (0, max(missing, self.symbols_DS.shape[1]))))
        for place in range(symbols_DS.shape[1]):
            here = lengths_D > place
            self.symbols_DS[documents_D[here], firsts_D[here] + place] = symbols_DS[here, place]


def _padded(row: list[int], *, length: int) -> list[int]:
    return row + [0] * (length - len(row))
