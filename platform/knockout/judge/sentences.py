"""A verdict's reason, in one plain sentence.

The invariant: it names the effect in its unit, its direction, the interval, the seeds and what the claim
asked for, so that the outcome can be checked by reading.
"""

from __future__ import annotations

import math

from knockout.declare.claim import Compared, Equivalent
from knockout.judge.binomial import Share
from knockout.judge.ranks import RankTest
from knockout.judge.student import PairedT
from knockout.judge.verdict import Interval


def number(value: float) -> str:
    """Three significant digits, whole from 100 on."""
    return f"{value:.0f}" if abs(value) >= 99.95 else f"{value:.3g}"


def count(amount: int, noun: str) -> str:
    """`1 seed`, `3 seeds`."""
    return f"{amount} {noun}" if amount == 1 else f"{amount} {noun}s"


def amount(value: float, *, metric: str) -> str:
    """A difference in the metric's unit: `5.91 nats`, `1 nat`, `0.1 bits per byte`."""
    unit = "bit" if metric == "bits_per_byte" else "nat"
    text = number(value)
    return f"{text} {unit}{'' if text == '1' else 's'}{' per byte' if unit == 'bit' else ''}"


def paired(expect: Compared | Equivalent, *, seen: PairedT, interval: Interval, metric: str) -> str:
    """What a comparison of finished runs found."""
    side = f"{amount(abs(seen.mean), metric=metric)} {'worse' if seen.mean > 0 else 'better'}"
    difference = "equal to" if seen.mean == 0.0 else f"{side} than"
    where = f"{expect.variant} is {difference} {expect.than} on {metric}"
    return f"{where}, {_interval(interval)}, {count(seen.num_pairs, 'paired seed')}"


def ranked(expect: Compared | Equivalent, *, seen: RankTest, metric: str) -> str:
    """What a comparison found in which a run diverged."""
    variant, than = (sum(math.isinf(value) for value in side) for side in (seen.variant, seen.than))
    return (
        f"{expect.variant} diverged in {variant} of {count(len(seen.variant), 'paired seed')}, "
        f"{expect.than} in {than}; compared by rank on {metric} with divergence as the worst"
    )


def share(variant: str, *, seen: Share, interval: Interval) -> str:
    """How often a variant diverged."""
    ends = f"{number(interval.low)} to {number(interval.high)}"
    often = f"{variant} diverged in {seen.count} of {count(seen.total, 'seed')}"
    return f"{often}, {_level(interval)} interval of the share {ends}"


def asked(expect: Compared | Equivalent, *, threshold: float, metric: str) -> str:
    """What the claim asked for."""
    if isinstance(expect, Equivalent):
        return f"the claim asked for a difference within ± {number(threshold)}"
    if threshold == 0.0:
        return f"the claim asked for {expect.relation}"
    return f"the claim asked for {expect.relation} by more than {amount(threshold, metric=metric)}"


def more(more_seeds: int | None) -> str:
    """What it would take to settle it."""
    return f"about {count(more_seeds, 'more seed')} needed" if more_seeds else "more than 100 more seeds needed"


def corrected(p: float, *, num_claims: int) -> str:
    """Why a claim that stands alone does not stand among the others."""
    among = f"among {num_claims} claims judged together"
    return f"alone this would settle it, but not {among} (Holm's p = {number(p)})"


def _level(interval: Interval) -> str:
    return f"{100 * interval.level:g} %"


def _interval(interval: Interval) -> str:
    """The ends in the direction of the effect; with a word for each where they lie on both sides of zero."""
    low, high = interval.low, interval.high
    if low < 0.0 < high:
        return f"{_level(interval)} interval from {number(-low)} better to {number(high)} worse"
    near, far = sorted((abs(low), abs(high)))
    return f"{_level(interval)} interval {number(near)} to {number(far)}"
