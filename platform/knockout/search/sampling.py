"""How trials are proposed: Optuna's samplers, and the points of a grid.

The invariant: every option that bears on what is proposed is explicit, since defaults change between versions.
"""

from __future__ import annotations

import hashlib
import math

from optuna.distributions import FloatDistribution
from optuna.samplers import BaseSampler, GPSampler, RandomSampler, TPESampler

from knockout.declare.tune import Gp, Grid, Random, Range, Tpe, Tune


def distribution(range_: Range) -> FloatDistribution:
    """A range in Optuna's terms."""
    return FloatDistribution(range_.low, range_.high, log=range_.log)


def sampler(tune: Tune, *, number: int) -> BaseSampler:
    """What proposes the trial of this number; the same draws for every cell that is searched alike."""
    seed = _seed(tune, number)
    match tune.sampler:
        case Tpe(startup=startup):
            return TPESampler(
                n_startup_trials=startup, n_ei_candidates=24, multivariate=False, group=False, constant_liar=False, seed=seed
            )
        case Gp(startup=startup):
            return GPSampler(
                n_startup_trials=startup,
                independent_sampler=RandomSampler(seed=seed),
                deterministic_objective=False,
                constraints_func=None,
                warn_independent_sampling=False,
                seed=seed,
            )
        case Random() | Grid():  # a grid's points are queued, so its sampler is never asked
            return RandomSampler(seed=seed)


def grid_point(tune: Tune, *, number: int) -> dict[str, float]:
    """The grid's point of that number, from the middle outwards, the higher of two first.

    What lies far out is so compared with what lies within; and a larger learning rate, which shows its worth late, is
    held against fewer smaller ones, which look well early.
    """
    middle = (tune.trials - 1) / 2
    place = sorted(range(tune.trials), key=lambda i: (abs(i - middle), -i))[number]
    return {path: spread(range_, count=tune.trials)[place] for path, range_ in tune.ranges.items()}


def spread(range_: Range, *, count: int) -> list[float]:
    """`count` values from low to high, evenly spaced, in the logarithm where that is searched."""
    low, high = (math.log(range_.low), math.log(range_.high)) if range_.log else (range_.low, range_.high)
    inner = [low + (high - low) * i / (count - 1) for i in range(1, count - 1)]
    return [range_.low, *(math.exp(x) if range_.log else x for x in inner), range_.high]


def _seed(tune: Tune, number: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{tune.model_dump_json()}/{number}".encode()).digest()[:4], "big")
