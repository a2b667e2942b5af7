"""Corpora that are drawn, not read: the best loss that any model can expect is known exactly.

The invariant: every combination that loads can be drawn.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from knockout.declare.base import Conflict, Declaration, NonNegative, conflicts
from knockout.declare.grammar import MAX_MEAN_LENGTH, Documents, Grammar

MAX_TRANSITIONS = 2**24
"""Largest transition table of a Markov source, in probabilities (128 MiB)."""


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


class FixedLength(Declaration):
    """Every string is equally long."""

    kind: Literal["fixed"] = "fixed"
    symbols: Annotated[int, Field(ge=1, le=65_536)]
    """Length of a string, in symbols."""

    @property
    def mean(self) -> float:
        """Mean length, in symbols."""
        return float(self.symbols)


class UniformLength(Declaration):
    """Each length from the least to the most is equally likely."""

    kind: Literal["uniform"] = "uniform"
    least: Annotated[int, Field(ge=1, le=65_536)]
    """Shortest string, in symbols."""
    most: Annotated[int, Field(ge=1, le=65_536)]
    """Longest string, in symbols; at least `least`."""

    @property
    def mean(self) -> float:
        """Mean length, in symbols."""
        return (self.least + self.most) / 2

    @model_validator(mode="after")
    def _in_order(self) -> UniformLength:
        if self.most < self.least:
            conflicts("UniformLength", [("most", self.most, f"the longest is at least the shortest, {self.least}")])
        return self


class GeometricLength(Declaration):
    """A string ends after each symbol with probability 1/mean: no length can be foreseen."""

    kind: Literal["geometric"] = "geometric"
    mean: Annotated[float, Field(ge=1.0, le=4096.0)]
    """Mean length, in symbols."""


Length = Annotated[FixedLength | UniformLength | GeometricLength, Field(discriminator="kind")]


class Copy(Declaration):
    """Copying: a random string, a separator, and the string again, as often as declared."""

    kind: Literal["copy"] = "copy"
    symbols: Annotated[int, Field(ge=2, le=32_768)] = 32
    """Number of different symbols that strings are made of."""
    length: Length = UniformLength(least=16, most=32)
    """How long a document's string is: with its separator the period of the document."""
    copies: Annotated[int, Field(ge=1, le=4096)] = 1
    """How often the string is told again, each time after a separator."""
    seed: NonNegative = 0
    """Draws the documents."""
    documents: Documents = 65_536
    """Number of documents."""

    @property
    def alphabet(self) -> int:
        """Number of symbols altogether: those of strings, then the separator."""
        return self.symbols + 1


class Dyck(Declaration):
    """Balanced brackets of several kinds, nested to a bounded depth or to any."""

    kind: Literal["dyck"] = "dyck"
    brackets: Annotated[int, Field(ge=1, le=4096)] = 8
    """Number of kinds of brackets, each as likely as any other."""
    depth: Annotated[int, Field(ge=1, le=65_536)] | None = 4
    """Most brackets that are open at once; null for any number."""
    opens: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.5
    """Inside a bracket, above the greatest depth: probability that another opens before it closes."""
    groups: Annotated[float, Field(ge=1.0, le=65_536.0)] = 16.0
    """Mean number of outermost pairs in a document, which ends after each of them with probability 1/groups."""
    seed: NonNegative = 0
    """Draws the documents."""
    documents: Documents = 32_768
    """Number of documents."""

    @property
    def alphabet(self) -> int:
        """Number of symbols: opening brackets, then closing ones."""
        return 2 * self.brackets

    @property
    def pairs(self) -> float:
        """Mean number of pairs in a document; infinite where brackets are not sure to close."""
        ratio = self.opens / (1.0 - self.opens)
        if self.depth is None:
            return self.groups / (1.0 - ratio) if ratio < 1.0 else math.inf
        powers = math.inf if self.depth * math.log(ratio) > 100.0 else math.fsum(ratio**d for d in range(self.depth))
        return self.groups * powers

    @model_validator(mode="after")
    def _closes(self) -> Dyck:
        if self.depth is None and self.opens >= 0.5:
            rule = "below 0.5 where depth has no bound, or brackets open for ever"
            conflicts("Dyck", [("opens", self.opens, rule)])
        if 2 * self.pairs > MAX_MEAN_LENGTH:
            rule = f"a document would have {2 * self.pairs:,.0f} symbols on average, of which {MAX_MEAN_LENGTH:,} fit"
            conflicts("Dyck", [("opens", self.opens, f"{rule}: lower opens, depth or groups")])
        return self


Generator = Markov | Recall | Composition | WordProblem | Copy | Dyck | Grammar
"""Sources whose symbols are tokens already."""
