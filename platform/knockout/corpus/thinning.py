"""How much of each source of a mixture is kept.

The invariant: whether a document stays depends on its content and its source's share alone, and no document is repeated to
fill a share. With b_i bytes of source i and shares s_i, the whole of size T that keeps the shares and repeats nothing is at
most min_i b_i / s_i; each source keeps the fraction T s_i / b_i of its documents, the scarcest all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from knockout.corpus.parts import Read
from knockout.corpus.runs import HASHES
from knockout.declare.corpus import Source
from knockout.declare.text_sources import Mixture
from knockout.errors import CorpusError


def kept_of(source: Source, *, reads: Sequence[Read]) -> Mapping[int, int]:
    """For each source by index the number of 2^64 that its documents' second 64 bits of hash must lie below.

    Raises:
        CorpusError: a source of a mixture has no text.
    """
    if not isinstance(source, Mixture):
        return {0: HASHES}
    sizes = [sum(one.num_bytes for one in reads if one.source == index) for index in range(len(source.sources))]
    empty = [part.name for part, size in zip(source.sources, sizes, strict=True) if not size]
    if empty:
        raise CorpusError(f"no text is left in {', '.join(empty)}, so that no mixture can hold it: take it out")
    shares = [Fraction(part.share) for part in source.sources]
    whole = min(size / share for size, share in zip(sizes, shares, strict=True))
    return {index: int(whole * share * HASHES / size) for index, (size, share) in enumerate(zip(sizes, shares, strict=True))}
