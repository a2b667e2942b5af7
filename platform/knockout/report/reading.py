"""How a table of verdicts is read: what the sign of an effect means, what its interval and its p are for.

The invariant: it says of the verdicts what `judge.verdict.Verdict` says of them, and nothing of relations that none has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_EFFECTS = (
    (
        ("worse", "better", "higher", "lower", "equivalent"),
        "the variant minus what it is compared with, so + is worse for a loss",
    ),
    (("ratio",), "for a ratio, the ratio"),
    (("interaction",), "for an interaction, the first gap minus the second"),
    (("trend",), "for a trend, the change of the gap with each doubling of the baseline's parameters"),
    (("order",), "for an order, its weakest step, where + goes as claimed"),
    (("knee", "threshold"), "for a knee or a threshold, the x with its confidence set"),
    (("diverges",), "for a divergence, the share of seeds"),
    (("causal", "not_causal"), "for a mask, the largest change of an earlier output"),
)


def how_to_read(verdicts: Sequence[Mapping[str, Any]]) -> str:
    """`Effect: ...; [interval] is for that claim alone, at 95 %; p is Holm-adjusted ...`, in one line."""
    relations = {verdict["relation"] for verdict in verdicts}
    effects = [meaning for members, meaning in _EFFECTS if relations & {*members}]
    return f"{'; '.join([f'Effect: {effects[0]}', *effects[1:], *_certainty(verdicts)])}." if effects else ""


def _certainty(verdicts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    levels = {verdict["interval"]["level"] for verdict in verdicts if verdict["interval"] is not None}
    if levels:
        level = f"{100 * min(levels):.3g} %" if len(levels) == 1 else "the level that its sentence names"
        yield f"[interval] is for that claim alone, at {level}"
    if any(verdict["p"] is not None for verdict in verdicts):
        yield "p is Holm-adjusted over the study's claims at a size, and decides"
