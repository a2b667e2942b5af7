"""What a sweep found that the nights before it did not: a verdict that flipped, a number that drifted, a speed that fell.

The invariant: seeds are fresh, so nights are independent samples; what one night differs by is held against the spread
over all seeds, and against the number of things that are looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from knockout.history.rows import Row
from knockout.judge.statistics.multiple import holm
from knockout.judge.statistics.student import t_below

ALPHA = 0.01
"""How often a sweep in which nothing changed reports a drift, over all that it looks at."""
SLOWER = 0.1
"""A smaller loss of throughput is none: machines vary by more than seeds do."""
NOISY = 0.05
"""A loss of throughput must be rarer than this among the machine's nights."""
NIGHTS = 3
"""With fewer of them, how much a machine's nights vary is not known."""
SPEED = "tokens_per_second"
UNTESTED = ("peak_memory_bytes", SPEED)
DECIDED = ("supported", "refuted")
Kind = Literal["flipped", "weakened", "decided", "drifted", "slower", "memory", "redeclared"]


@dataclass(frozen=True)
class Sample:
    """Mean, standard deviation (n - 1 in the denominator; 0 where n is 1) and count of some values."""

    mean: float
    sd: float
    count: int


@dataclass(frozen=True)
class Change:
    """One thing that is not as it was."""

    kind: Kind
    study: str
    size: str
    name: str
    """The variant, or the claim."""
    metric: str
    before: str
    now: str
    sentence: str
    p: float | None = None
    """Of a drift, after Holm's correction over everything that the sweep looked at."""


def changes(tonight: Sequence[Row], *, past: Sequence[Row]) -> list[Change]:
    """What changed: flips first, then verdicts, drifts, and speeds. `past` are the rows of earlier sweeps, oldest first."""
    pairs = [(row, _same(row, past=past)) for row in tonight]
    known = [(row, before) for row, before in pairs if before]
    verdicts = [change for row, before in known if row.kind == "claim" for change in _verdict(row, before[-1])]
    speeds = [change for row, before in known if row.metric in UNTESTED for change in _cost(row, before)]
    order = ("flipped", "weakened", "decided", "redeclared", "drifted", "slower", "memory")
    found = [*verdicts, *_redeclared(tonight, past=past), *_drifts(known), *speeds]
    return sorted(found, key=lambda change: order.index(change.kind))


def pooled(samples: Iterable[Sample]) -> Sample:
    """Samples as one: the spread within them and between their means."""
    parts = list(samples)
    count = sum(part.count for part in parts)
    mean = math.fsum(part.count * part.mean for part in parts) / count
    squares = math.fsum((part.count - 1) * part.sd**2 + part.count * (part.mean - mean) ** 2 for part in parts)
    return Sample(mean, math.sqrt(squares / (count - 1)) if count > 1 else 0.0, count)


def differ(one: Sample, other: Sample) -> float | None:
    """The two-sided p-value of "both have the same expectation"; None with fewer than three values.

    Source: Student's t of two samples with one variance, n1 + n2 - 2 degrees of freedom (Fisher, "Statistical methods for
    research workers", 1925, section 24.1).
    """
    degrees = one.count + other.count - 2
    if degrees < 1:
        return None
    variance = ((one.count - 1) * one.sd**2 + (other.count - 1) * other.sd**2) / degrees
    error = math.sqrt(variance * (1 / one.count + 1 / other.count))
    distance = abs(one.mean - other.mean)
    if error == 0.0:
        return 1.0 if distance == 0.0 else 0.0
    return 2.0 * t_below(-distance / error, degrees=degrees)


def _same(row: Row, *, past: Sequence[Row]) -> list[Row]:
    """Earlier nights of the same cell's metric, or claim, of the same declaration; speeds of the same machine.

    Of nights that had the same seeds the last one counts, and none that had tonight's.
    """
    key = (row.study, row.size, row.kind, row.name, row.metric, row.declaration)
    found = [one for one in past if (one.study, one.size, one.kind, one.name, one.metric, one.declaration) == key]
    by_seed = {one.first_seed: one for one in found if one.first_seed != row.first_seed}
    return [one for one in by_seed.values() if row.metric not in UNTESTED or one.machine == row.machine]


def _verdict(row: Row, before: Row) -> Iterator[Change]:
    if row.outcome == before.outcome or row.outcome is None or before.outcome is None:
        return
    both = row.outcome in DECIDED and before.outcome in DECIDED
    kind: Kind = "flipped" if both else "decided" if row.outcome in DECIDED else "weakened"
    says = f"{row.name} at {row.size} was {before.outcome} and is {row.outcome}"
    yield Change(kind, row.study, row.size, row.name, "verdict", before.outcome, row.outcome, says)


def _drifts(known: Sequence[tuple[Row, list[Row]]]) -> Iterator[Change]:
    """Metrics and effects beyond their noise, at one error rate over all of them."""
    tested: list[tuple[Row, Sample, Sample, float]] = []
    for row, before in known:
        now, then = _sample(row), [sample for one in before if (sample := _sample(one)) is not None]
        if row.metric in UNTESTED or now is None or not then:
            continue
        earlier = pooled(then)
        if (p := differ(now, earlier)) is not None:
            tested.append((row, now, earlier, p))
    for (row, now, then, _), adjusted in zip(tested, holm([p for *_, p in tested]), strict=True):
        if adjusted.p < ALPHA:
            what = f"the effect of {row.name}" if row.kind == "claim" else f"{row.metric} of {row.name}"
            says = f"{what} at {row.size} is {now.mean:.4g}, and was {then.mean:.4g} ± {then.sd:.2g} over {then.count} seeds"
            values = f"{then.mean:.6g}", f"{now.mean:.6g}"
            yield Change("drifted", row.study, row.size, row.name, row.metric, *values, says, p=adjusted.p)


def _cost(row: Row, before: Sequence[Row]) -> Iterator[Change]:
    """A throughput that fell, or a peak of memory that rose, by more than machines vary."""
    then = sorted(one.mean for one in before if one.mean is not None)
    if row.mean is None or len(then) < NIGHTS:
        return
    usual = then[len(then) // 2]
    share, slower = row.mean / usual - 1.0, row.metric == SPEED
    noise = differ(Sample(row.mean, 0.0, 1), pooled(Sample(value, 0.0, 1) for value in then))
    if ((share < -SLOWER) if slower else (share > SLOWER)) and noise is not None and noise < NOISY:
        says = f"{row.metric} of {row.name} at {row.size} is {row.mean:.4g}, {share:+.0%} of the median before, {usual:.4g}"
        kind: Kind = "slower" if slower else "memory"
        yield Change(kind, row.study, row.size, row.name, row.metric, f"{usual:.6g}", f"{row.mean:.6g}", says)


def _redeclared(tonight: Sequence[Row], *, past: Sequence[Row]) -> Iterator[Change]:
    """Studies that are not the question that they were: there is nothing to compare yet."""
    for study in dict.fromkeys(row.study for row in tonight):
        now = next(row for row in tonight if row.study == study)
        before = [row.declaration for row in past if row.study == study]
        if before and now.declaration not in before:
            says = f"{study} is declared otherwise than on any night before: its history begins anew"
            yield Change("redeclared", study, now.size, study, "declaration", before[-1], now.declaration, says)


def _sample(row: Row) -> Sample | None:
    if row.mean is None or (row.kind == "claim" and row.sd is None):
        return None
    return Sample(row.mean, row.sd or 0.0, row.num_seeds)
