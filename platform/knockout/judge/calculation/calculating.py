"""Claims in, verdicts out, for everything that needs no run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from knockout.declare.claims_file import LoadedClaim
from knockout.judge.calculation.calculated import CalculatedVerdict
from knockout.judge.calculation.counts import decide_count


def calculate(claims: Sequence[LoadedClaim]) -> Iterator[CalculatedVerdict]:
    """Verdicts in the claims' order, as they are found. Raises as `decide_count` and `decide_identity`."""
    for loaded in claims:
        if loaded.kind == "count":
            yield decide_count(loaded)
        else:
            # torch takes a second to import, which counts need not wait for.
            from knockout.judge.calculation.identities import decide_identity

            yield decide_identity(loaded)
