"""Corpora that are drawn, not read: the best loss that any model can expect is known exactly.

The invariant: every combination that loads can be drawn.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from knockout.declare.base import Conflict, Declaration, NonNegative, conflicts

MAX_TRANSITIONS = 2**24
"""Largest transition table of a Markov source, in probabilities (128 MiB)."""

Documents = Annotated[int, Field(ge=1, le=10_000_000)]


class Markov(Declaration):
    """A Markov chain over symbols with rows drawn from a Dirichlet: its entropy rate is known exactly.

    A document begins with stationary symbols and ends after each symbol with probability 1/length.
    """

    kind: Literal["markov"] = "markov"
    order: Annotated[int, Field(ge=0, le=8)] = 2
    """How many symbols the next one depends on."""
    alphabet: Annotated[int, Field(ge=2, le=512)] = 64
    """Number of symbols."""
    seed: NonNegative = 0
    """Draws the transition table and the documents."""
    documents: Documents = 4096
    """Number of documents."""
    length: Annotated[int, Field(ge=1, le=1_000_000)] = 512
    """Mean length of a document, in symbols."""
    concentration: Annotated[float, Field(ge=0.05, le=1000.0)] = 0.1
    """The Dirichlet's parameter: small makes rows peaked (low entropy), large makes them uniform."""

    @model_validator(mode="after")
    def _table_fits(self) -> Markov:
        if (size := self.alphabet ** (self.order + 1)) > MAX_TRANSITIONS:
            rule = f"alphabet^(order + 1) is {size:,} probabilities; at most {MAX_TRANSITIONS:,} fit"
            conflicts("Markov", [("order", self.order, rule)])
        return self


class Recall(Declaration):
    """Associative recall: a document lists pairs of a key and a value, and later asks for values by their keys."""

    kind: Literal["recall"] = "recall"
    keys: Annotated[int, Field(ge=2, le=4096)] = 16
    """Number of different keys."""
    values: Annotated[int, Field(ge=2, le=4096)] = 16
    """Number of different values."""
    pairs: Annotated[int, Field(ge=2, le=4096)] = 4
    """Pairs that a document lists, at most `keys`: no key has two values."""
    queries: Annotated[int, Field(ge=1, le=65_536)] = 24
    """Queries a document, each of any of its pairs."""
    distance: Annotated[int, Field(ge=0, le=65_536)] = 4
    """Blanks between the last pair and the first query, in tokens: how far the first answers are to be carried, at least."""
    seed: NonNegative = 0
    """Draws the documents."""
    documents: Documents = 65_536
    """Number of documents."""

    @property
    def alphabet(self) -> int:
        """Number of symbols: keys, then values, then the blank."""
        return self.keys + self.values + 1

    @model_validator(mode="after")
    def _a_key_for_each_pair(self) -> Recall:
        if self.pairs > self.keys:
            rule = f"each pair of a document has a key of its own: at most keys = {self.keys}"
            conflicts("Recall", [("pairs", self.pairs, rule)])
        return self


class Composition(Declaration):
    """Look-up in several hops: a document tells where each symbol leads, then asks where h steps lead from a symbol."""

    kind: Literal["composition"] = "composition"
    symbols: Annotated[int, Field(ge=2, le=4096)] = 16
    """Number of different symbols."""
    links: Annotated[int, Field(ge=2, le=4096)] = 4
    """Symbols that a document's function leads through, all in one cycle; at most `symbols`."""
    hops: Annotated[int, Field(ge=1, le=2048)] = 2
    """Most steps that a query asks for; at most half of `links`, for beyond that the way back is shorter."""
    queries: Annotated[int, Field(ge=1, le=65_536)] = 16
    """Queries a document."""
    seed: NonNegative = 0
    """Draws the documents."""
    documents: Documents = 65_536
    """Number of documents."""

    @property
    def alphabet(self) -> int:
        """Number of symbols altogether: those of functions, then one for each number of hops."""
        return self.symbols + self.hops

    @model_validator(mode="after")
    def _fits(self) -> Composition:
        found: list[Conflict] = []
        if self.links > self.symbols:
            found.append(("links", self.links, f"each link starts at another symbol: at most symbols = {self.symbols}"))
        if 2 * self.hops > self.links:
            rule = f"at most half of links = {self.links}: beyond that the way back round the cycle is shorter"
            found.append(("hops", self.hops, rule))
        conflicts("Composition", found)
        return self


class WordProblem(Declaration):
    """The word problem of a symmetric group: words of swaps of two points, each followed by where it takes every point."""

    kind: Literal["word_problem"] = "word_problem"
    points: Annotated[int, Field(ge=3, le=64)] = 5
    """Number of points: from 3 on the order of swaps matters, from 5 on their group is not solvable."""
    length: Annotated[int, Field(ge=1, le=4096)] = 5
    """Longest word, in swaps; each length from 1 on is equally likely."""
    words: Annotated[int, Field(ge=1, le=4096)] = 16
    """Words a document. Documents of few short words repeat, and copies fall on one side of the split."""
    seed: NonNegative = 0
    """Draws the documents."""
    documents: Documents = 16_384
    """Number of documents."""

    @property
    def swaps(self) -> int:
        """Number of different swaps of two points."""
        return self.points * (self.points - 1) // 2

    @property
    def alphabet(self) -> int:
        """Number of symbols: swaps, then points, then the equals sign."""
        return self.swaps + self.points + 1


Generator = Markov | Recall | Composition | WordProblem
"""Sources whose symbols are tokens already."""
