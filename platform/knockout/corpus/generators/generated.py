"""Generated corpora: their documents, and the least loss that any model can expect on them.

The invariant: a generator's documents are a pure function of its declaration.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from knockout.corpus.generators import composition, copying, dyck, grammar, recall, word_problem
from knockout.corpus.generators.markov import MarkovChain
from knockout.declare.generators import Composition, Copy, Dyck, Generator, Markov, Recall, WordProblem
from knockout.declare.grammar import Grammar


def generate(source: Generator) -> Iterator[np.ndarray]:
    """Each document's symbols, int64, without end-of-text."""
    match source:
        case Markov():
            return MarkovChain.draw(source).documents(source)
        case Recall():
            return recall.documents(source)
        case Composition():
            return composition.documents(source)
        case WordProblem():
            return word_problem.documents(source)
        case Copy():
            return copying.documents(source)
        case Dyck():
            return dyck.documents(source)
        case Grammar():
            return grammar.documents(source)


def entropy_rate(source: Generator) -> float:
    """The least nats per token that any model can expect, of documents each followed by end-of-text.

    It is what a model expects that sees each document from its start; of a document that a window cuts, less is known.
    """
    match source:
        case Markov():
            return MarkovChain.draw(source).entropy_rate()
        case Recall():
            return recall.nats(source) / (recall.length(source) + 1)
        case Composition():
            return composition.nats(source) / (composition.length(source) + 1)
        case WordProblem():
            return word_problem.nats(source) / (word_problem.mean_length(source) + 1)
        case Copy():
            return copying.nats(source) / (copying.mean_length(source) + 1)
        case Dyck():
            return dyck.nats(source) / (dyck.mean_length(source) + 1)
        case Grammar():
            return grammar.nats(source) / (grammar.mean_length(source) + 1)
