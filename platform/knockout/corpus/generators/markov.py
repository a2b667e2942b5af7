"""A Markov chain over symbols whose entropy rate, end-of-text included, is known exactly.

The invariant: what is generated is the stationary process that the rate is computed for. A document's first
symbols are drawn from the stationary distribution of contexts, and after each symbol it ends with
probability 1/length, so that the end-of-text token is as random to the true model as the rate says: no
model gains by counting positions.

Shapes: A symbols, k order, K = A^k contexts, D documents.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from knockout.corpus.generators.drawing import DOCUMENTS, TABLE, groups, stream
from knockout.declare.generators import Markov
from knockout.errors import CorpusError

MAX_ITERATIONS = 20_000


@dataclass(frozen=True, eq=False)
class MarkovChain:
    """Transition probabilities and the stationary distribution of contexts.

    A context is its k symbols read as a number of base A, the oldest first.
    """

    order: int
    transitions_KA: np.ndarray
    stationary_K: np.ndarray
    stop: float
    """Probability that a document ends after a symbol."""

    @classmethod
    def draw(cls, source: Markov) -> MarkovChain:
        """The chain that a declaration's seed gives; its rows are Dirichlet with equal parameters.

        Raises:
            CorpusError: the chain forgets its start too slowly for a stationary distribution to be found.
        """
        shape = (source.alphabet**source.order, source.alphabet)
        weights_KA = stream(source.seed, purpose=TABLE).standard_gamma(source.concentration, shape) + 1e-12
        transitions_KA = weights_KA / weights_KA.sum(1, keepdims=True)
        return cls(source.order, transitions_KA, stationary(transitions_KA), 1.0 / source.length)

    def documents(self, source: Markov) -> Iterator[np.ndarray]:
        """The documents, int64 [length of each], in groups so that memory stays small."""
        for group, count in enumerate(groups(source.documents, length=source.length)):
            yield from self._generate(stream(source.seed, purpose=DOCUMENTS, part=group), count)

    def _generate(self, random: np.random.Generator, count: int) -> Iterator[np.ndarray]:
        num_symbols = self.transitions_KA.shape[1]
        lengths_D = np.sort(random.geometric(self.stop, count))[::-1]
        symbols_LD = np.zeros((lengths_D[0], count), np.uint16)
        contexts_D = _draw_contexts(self.stationary_K, random, count)
        for place in range(min(self.order, len(symbols_LD))):
            symbols_LD[place] = contexts_D // num_symbols ** (self.order - 1 - place) % num_symbols
        ladder = _Ladder.of(self.transitions_KA)
        for place in range(self.order, len(symbols_LD)):
            alive = int(np.searchsorted(-lengths_D, -place))
            contexts = contexts_D[:alive]
            symbols_LD[place, :alive] = drawn = ladder.draw(contexts, random.random(alive))
            contexts_D[:alive] = (contexts * num_symbols + drawn) % len(self.stationary_K)
        for index, length in enumerate(lengths_D):
            yield symbols_LD[:length, index].astype(np.int64)

    def entropy_rate(self) -> float:
        """The least nats per token that any model can expect, of documents each followed by end-of-text.

        By renewal over documents: a document of l symbols costs the entropy of its first min(l, k) symbols
        and the chain's conditional entropy for each further one; whether it ends is a coin after each
        symbol; it fills l + 1 tokens. For the chain's rate, Cover and Thomas, "Elements of Information
        Theory" (2006), theorem 4.2.4.
        """
        rate = float(self.stationary_K @ _entropy(self.transitions_KA))
        going = 1.0 - self.stop
        coin = float(_entropy(np.array([[self.stop, going]]))[0])
        begins = [self._block_entropy(length) for length in range(self.order + 1)]
        symbols = sum((begins[n] - begins[n - 1]) * going ** (n - 1) for n in range(1, self.order + 1))
        mean_length = 1.0 / self.stop
        symbols += rate * going**self.order * mean_length
        return float(symbols + coin * mean_length) / (mean_length + 1.0)

    def _block_entropy(self, length: int) -> float:
        prefixes = self.stationary_K.reshape(self.transitions_KA.shape[1] ** length, -1).sum(1)
        return float(_entropy(prefixes[None])[0])


@dataclass(frozen=True, eq=False)
class _Ladder:
    """All rows' cumulative probabilities on one line, row r from r to r + 1: one search draws for all."""

    steps: np.ndarray
    num_symbols: int

    @classmethod
    def of(cls, transitions_KA: np.ndarray) -> _Ladder:
        cumulative_KA = np.cumsum(transitions_KA, axis=1)
        cumulative_KA[:, -1] = 1.0
        return cls((cumulative_KA + np.arange(len(cumulative_KA))[:, None]).ravel(), transitions_KA.shape[1])

    def draw(self, rows_D: np.ndarray, uniform_D: np.ndarray) -> np.ndarray:
        found_D = np.searchsorted(self.steps, rows_D + uniform_D, side="right") - rows_D * self.num_symbols
        return np.clip(found_D, 0, self.num_symbols - 1)


def stationary(transitions_KA: np.ndarray) -> np.ndarray:
    """The distribution of contexts that a step of the chain leaves as it is, by damped power iteration.

    Raises:
        CorpusError: it does not settle.
    """
    num_contexts, num_symbols = transitions_KA.shape
    current_K = np.full(num_contexts, 1.0 / num_contexts)
    for _ in range(MAX_ITERATIONS):
        joint = current_K[:, None] * transitions_KA
        moved_K = joint.reshape(num_symbols, -1).sum(0) if num_contexts > 1 else current_K
        change = float(np.abs(moved_K - current_K).sum())
        current_K = (current_K + moved_K) / 2
        current_K /= current_K.sum()
        if change < 1e-13:
            return current_K
    raise CorpusError(
        f"the Markov chain has no stationary distribution that {MAX_ITERATIONS:,} iterations reach: "
        "raise source.concentration or take another source.seed"
    )


def _draw_contexts(stationary_K: np.ndarray, random: np.random.Generator, count: int) -> np.ndarray:
    found = np.searchsorted(np.cumsum(stationary_K), random.random(count), side="right")
    return np.minimum(found, len(stationary_K) - 1)


def _entropy(rows: np.ndarray) -> np.ndarray:
    return -(rows * np.log(np.where(rows > 0, rows, 1.0))).sum(1)
