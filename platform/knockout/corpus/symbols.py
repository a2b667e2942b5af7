"""What a generator's symbols are called where people read them."""

from __future__ import annotations

from itertools import combinations

from knockout.declare.generators import Composition, Copy, Dyck, Generator, Markov, Recall, WordProblem
from knockout.declare.grammar import Grammar

BRACKETS = ("([{<", ")]}>")


def symbol_names(source: Generator) -> tuple[str, ...]:
    """A name for each symbol, by its number; none of them holds a space."""
    match source:
        case Markov(alphabet=alphabet):
            return tuple(map(str, range(alphabet)))
        case Recall(keys=keys, values=values):
            return (*(f"k{i}" for i in range(keys)), *(f"v{i}" for i in range(values)), "·")
        case Composition(symbols=symbols, hops=hops):
            return (*(f"s{i}" for i in range(symbols)), *(f"{i}:" for i in range(1, hops + 1)))
        case WordProblem(points=points):
            joined = "" if points < 10 else ","
            swaps = (f"({joined.join(map(str, pair))})" for pair in combinations(range(1, points + 1), 2))
            return (*swaps, *map(str, range(1, points + 1)), "=")
        case Copy(symbols=symbols):
            return (*map(str, range(symbols)), "/")
        case Dyck(brackets=brackets):
            if brackets <= len(BRACKETS[0]):
                return (*BRACKETS[0][:brackets], *BRACKETS[1][:brackets])
            return (*(f"({i}" for i in range(brackets)), *(f"{i})" for i in range(brackets)))
        case Grammar():
            return source.lexicon
