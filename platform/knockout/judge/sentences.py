"""A verdict's reason, in one plain sentence.

The invariant: it names the effect in its unit, its direction, the interval, the seeds and what the claim
asked for, so that the outcome can be checked by reading.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from knockout.judge.shapes.observed import Cell, Observed
from knockout.judge.statistics.binomial import Share
from knockout.judge.statistics.student import PairedT
from knockout.judge.verdict import Interval

Words = tuple[str, str]
"""What an effect under zero is called, and one over it."""
SIDES: Words = ("better", "worse")
HEIGHTS: Words = ("lower", "higher")
EXTENTS: Words = ("smaller", "larger")
UNCOUNTED = "more seeds needed; how many is not estimated, because runs diverged"
BYTES_IN_MB = 1e6


def number(value: float) -> str:
    """Three significant digits, whole from 100 on."""
    return f"{value:.0f}" if abs(value) >= 99.95 else f"{value:.3g}"


def count(amount: int, noun: str) -> str:
    """`1 seed`, `3 seeds`."""
    return f"{amount} {noun}" if amount == 1 else f"{amount} {noun}s"


def figure(value: float, *, metric: str) -> str:
    """A value of the metric without its unit; bytes in MB (10^6 bytes)."""
    return number(value / BYTES_IN_MB if metric == "peak_memory_bytes" else value)


def amount(value: float, *, metric: str) -> str:
    """A difference in the metric's unit: `5.91 nats`, `1 nat`, `0.1 bits per byte`, `12.5 MB`, `310 tokens/s`."""
    text = figure(value, metric=metric)
    match metric:
        case "peak_memory_bytes":
            return f"{text} MB"
        case "tokens_per_second":
            return f"{text} tokens/s"
        case "bits_per_byte":
            return f"{text} bit{'' if text == '1' else 's'} per byte"
        case _:
            return f"{text} nat{'' if text == '1' else 's'}"


@dataclass(frozen=True)
class Difference:
    """How a difference is told: whose it is, from what, and in which words."""

    ours: str
    theirs: str
    words: Words

    def found(self, seen: PairedT, *, interval: Interval, metric: str) -> str:
        """What finished runs say of it."""
        side = f"{amount(abs(seen.mean), metric=metric)} {self.words[seen.mean > 0]} than"
        difference = "equal to" if seen.mean == 0.0 else side
        spread = within(interval, words=self.words, metric=metric)
        return f"{self.ours} {difference} {self.theirs} on {metric}, {spread}, {seeds(seen.num_pairs)}"


@dataclass(frozen=True)
class Slope:
    """How a change with size is told."""

    gap: str

    def found(self, seen: PairedT, *, interval: Interval, metric: str) -> str:
        """What finished runs say of it."""
        change = f"{'rises' if seen.mean > 0 else 'falls'} by {amount(abs(seen.mean), metric=metric)}"
        spread = within(interval, words=("falling", "rising"), metric=metric)
        doing = "does not change" if seen.mean == 0.0 else change
        return f"{self.gap} {doing} with each doubling of the baseline's parameters, {spread}, {seeds(seen.num_pairs)}"


def seeds(num_seeds: int) -> str:
    """`5 paired seeds`."""
    return count(num_seeds, "paired seed")


def ranked(observed: Observed, *, cells: Sequence[Cell]) -> str:
    """What a comparison found in which a run diverged."""
    (name, _), *others = cells
    first = f"{name} diverged in {observed.diverged(cells[0])} of {seeds(observed.num_seeds)}"
    rest = [f"{cell[0]} in {observed.diverged(cell)}" for cell in cells[1:]]
    how = "by rank" if len(others) == 1 else "by signed ranks"
    return f"{', '.join([first, *rest])}; compared {how} on {observed.metric} with divergence as the worst"


def cancelled(observed: Observed, *, cells: Sequence[Cell]) -> str:
    """Why divergences leave nothing to compare."""
    names = [f"{name} in {observed.diverged((name, size))}" for name, size in cells if observed.diverged((name, size))]
    return (
        f"runs diverged ({', '.join(names)} of {seeds(observed.num_seeds)}) on both sides of the difference at the same "
        f"seed, so that it has no value there"
    )


def unmeasured(observed: Observed, *, what: str) -> str:
    """Why a divergence leaves what a claim is about without a value."""
    names = [f"{name} at {size} in {n}" for name, size in observed.values if (n := observed.diverged((name, size)))]
    return f"runs diverged ({', '.join(names)} of {seeds(observed.num_seeds)}), and {what} has no value then"


def share(variant: str, *, seen: Share, interval: Interval) -> str:
    """How often a variant diverged."""
    ends = f"{number(interval.low)} to {number(interval.high)}"
    often = f"{variant} diverged in {seen.count} of {count(seen.total, 'seed')}"
    return f"{often}, {level(interval)} interval of the share {ends}"


def asked(relation: str, *, threshold: float, metric: str) -> str:
    """What a claim about a side asked for."""
    more_than = f" by more than {amount(threshold, metric=metric)}" if threshold else ""
    return f"the claim asked for {relation}{more_than}"


def asked_within(margin: float, *, metric: str) -> str:
    """What a claim of equivalence asked for."""
    return f"the claim asked for a difference within ± {figure(margin, metric=metric)}"


def asked_trend(direction: str, *, by: float, metric: str) -> str:
    """What a claim about a trend asked for."""
    more_than = f" by more than {amount(by, metric=metric)} with each doubling" if by else ""
    return f"the claim asked for a gap that {direction}{more_than}"


def more(more_seeds: int | None) -> str:
    """What it would take to settle it."""
    return f"about {count(more_seeds, 'more seed')} needed" if more_seeds else "more than 100 more seeds needed"


def at_floor(names: Sequence[str], *, others: Sequence[str]) -> str:
    """Why no number of seeds would settle a claim about cells that have learnt nothing."""
    are, have = ("are", "they have") if len(names) > 1 else ("is", "it has")
    learners = others[0] if len(others) == 1 else "the others"
    says = f"says only how well {learners} learnt" if others else "says nothing"
    held = f"{listed(names)} {are} no better than the unigram floor: {have} learnt nothing, so that what was measured {says}"
    return f"{held}; more tokens or another budget would decide it"


def listed(names: Sequence[str]) -> str:
    """`a, b and c`."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def corrected(p: float, *, num_claims: int) -> str:
    """Why a claim that stands alone does not stand among the others."""
    among = f"among {num_claims} claims judged together"
    return f"alone this would settle it, but not {among} (Holm's p = {number(p)})"


def level(interval: Interval) -> str:
    """`95 %`."""
    return f"{100 * interval.level:g} %"


def within(interval: Interval, *, words: Words, metric: str) -> str:
    """The ends in the direction of the effect; with a word for each where they lie on both sides of zero."""
    low, high = interval.low, interval.high
    if low < 0.0 < high:
        ends = f"{figure(-low, metric=metric)} {words[0]} to {figure(high, metric=metric)} {words[1]}"
        return f"{level(interval)} interval from {ends}"
    near, far = sorted((abs(low), abs(high)))
    return f"{level(interval)} interval {figure(near, metric=metric)} to {figure(far, metric=metric)}"
