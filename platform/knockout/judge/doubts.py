"""What the results of a study give reason to doubt, in sentences.

The invariant: told from the plan, the records and the searches alone, so that anyone can work it out again. Nothing is
removed for it, and it makes no verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from knockout.declare.plan import Plan
from knockout.judge.competence import competence_at
from knockout.judge.fairness import compared_cells
from knockout.judge.flag import Flag
from knockout.judge.floors import Floors, Unlearnt, unlearnt
from knockout.judge.pruned import chosen_trial, overlooked
from knockout.judge.records import RunRecord, final_value, fitting, of_cell
from knockout.judge.sentences import amount, count, listed, number
from knockout.judge.statistics.outliers import grubbs_critical, outlier, prediction_bound

OUTLIER_ALPHA = 0.01
"""The chance that a sound cell has a seed that is told."""
LUCK_ALPHA = 0.005
"""The chance that a sound trial lies so far under its judged seeds; up to k times that for the best of k alike (Boole)."""


def doubts(
    plan: Plan, *, records: Sequence[RunRecord], floors: Floors, tuned: Sequence[Mapping[str, Any]] = ()
) -> list[Flag]:
    """Everything in the judged runs and the searches that a reader should weigh; the serious flags first.

    `floors` holds, for each size, the corpus' cross-entropies by name, nats per token; `tuned`, for each cell that was
    searched, variant, size, chosen (path -> value) and trials (state, values, loss, last: (step, loss), identities); a
    pruned one may have in_full, what it came to when it was trained to its end all the same.
    """
    metric = plan.study.decide.metric
    flags = [*_at_floor(plan, records=records, floors=floors), *_flat(plan, tuned=tuned)]
    for search in tuned:
        flags += [*_unlucky(search, plan=plan, records=records), *_overlooked(search, plan=plan)]
    for cell in plan.cells:
        flags += _outlying(cell.variant, cell.size, plan=plan, records=records, metric=metric)
    return sorted(flags, key=lambda flag: flag.level != "serious")


def _at_floor(plan: Plan, *, records: Sequence[RunRecord], floors: Floors) -> Iterator[Flag]:
    """Compared cells that have learnt nothing, where the baseline has learnt enough for anything to be concluded."""
    asked = {(cell.variant, cell.size) for pair in compared_cells(plan) for cell in pair}
    cells = [at for cell in plan.cells if (at := (cell.variant, cell.size)) in asked]
    found = unlearnt(cells, records=records, floors=floors, margin=plan.study.decide.margin)
    competence = plan.study.competence
    for size in plan.study.size_names:
        told = [one for one in found.values() if one.size == size]
        if told and competence_at(size, competence=competence, records=records, floors=floors[size]).met:
            yield Flag("floor", "serious", _only(told), size, _learnt_nothing(told, plan=plan))


def _only(told: Sequence[Unlearnt]) -> str | None:
    return told[0].variant if len(told) == 1 else None


def _learnt_nothing(told: Sequence[Unlearnt], *, plan: Plan) -> str:
    floor, margin = told[0].floor, plan.study.decide.margin
    have = "have" if len(told) > 1 else "has"
    names = listed([f"{_name(one.variant, one.size, plan=plan)} ({number(one.loss)})" for one in told])
    under = f"not under the unigram floor of {amount(floor, metric='val_loss')} by more than the margin of {number(margin)}"
    rest = f"how far {'they lie' if len(told) > 1 else 'it lies'} over another says only how well that one learnt"
    return f"{names} {have} learnt nothing: on val_loss {under}; {rest}"


def _flat(plan: Plan, *, tuned: Sequence[Mapping[str, Any]]) -> Iterator[Flag]:
    """Searches in which every trial came to the same loss, within the margin."""
    margin = plan.study.decide.margin
    for size in plan.study.size_names:
        flat = [one for one in tuned if one["size"] == size and (spread := _spread(one)) is not None and spread <= margin]
        for chosen in dict.fromkeys(tuple(one["chosen"]) for one in flat):
            names = [_name(one["variant"], size, plan=plan) for one in flat if tuple(one["chosen"]) == chosen]
            make, ones = ("makes", "the one") if len(chosen) == 1 else ("make", "those")
            got = f"{ones} {'it' if len(names) == 1 else 'each'} got {'is' if len(chosen) == 1 else 'are'} a coin's"
            said = f"the {listed(chosen)} of {listed(names)} {make} no difference that was measured"
            within = f"all trials lie within {amount(margin, metric='val_loss')}"
            variant = flat[0]["variant"] if len(flat) == 1 else None
            yield Flag("flat", "note", variant, size, f"{said}, for {within}; {got}")


def _spread(search: Mapping[str, Any]) -> float | None:
    """The distance between the best and the worst trial, a pruned one by its last evaluation; None with a divergence."""
    trials = search["trials"]
    if len(trials) < 2 or any(trial["state"] not in ("done", "pruned") for trial in trials):
        return None
    losses = [trial["loss"] if trial["state"] == "done" else trial["last"][1] for trial in trials]
    return max(losses) - min(losses)


def _unlucky(search: Mapping[str, Any], *, plan: Plan, records: Sequence[RunRecord]) -> Iterator[Flag]:
    """A winner whose judged runs fall behind it by more than chance allows, or behind a trial that lost to it."""
    variant, size = search["variant"], search["size"]
    runs = of_cell(records, variant=variant, size=size).values()
    values = list(_finished(runs, metric=fitting("val_loss", runs=runs)).values())
    done = sorted((trial for trial in search["trials"] if trial["state"] == "done"), key=lambda trial: trial["loss"])
    if len(values) < 2 or not done:
        return
    mean, sd = float(np.mean(values)), float(np.std(values, ddof=1))
    winner, *rejected = done
    name = f"the {_settings(winner)} of {_name(variant, size, plan=plan)}"
    reached = (
        f"its trial reached {number(winner['loss'])}, its {count(len(values), 'judged seed')} {number(mean)} on average"
    )
    bound = prediction_bound(sd, num_seen=len(values), num_new=len(winner["identities"]), alpha=LUCK_ALPHA)
    above = mean - winner["loss"]
    better = f"the rejected trial at {_settings(rejected[0])} reached {number(rejected[0]['loss'])}" if rejected else ""
    if above > bound:
        chance = f"{amount(above, metric='val_loss')} more, where chance allows {number(bound)}"
        said = f"{name} won its search by luck, or it is unstable: {reached}, {chance}"
        said += f"; {better}, less than that mean" if rejected and rejected[0]["loss"] < mean else ""
        yield Flag("luck", "serious", variant, size, said)
    elif rejected and mean - rejected[0]["loss"] > plan.study.decide.margin:
        less = amount(mean - rejected[0]["loss"], metric="val_loss")
        yield Flag(
            "luck", "note", variant, size, f"{name} may have won its search by luck: {reached}; {better}, {less} less"
        )


def _settings(trial: Mapping[str, Any]) -> str:
    """`learning_rate 0.0054`."""
    return ", ".join(f"{path} {value:.3g}" for path, value in trial["values"].items())


def _overlooked(search: Mapping[str, Any], *, plan: Plan) -> Iterator[Flag]:
    """A pruned trial that was trained to its end all the same, and then was better than what the search chose."""
    if (trial := overlooked(search)) is None:
        return
    better = chosen_trial(search)["loss"] - trial["in_full"]["loss"]
    values = ", ".join(f"{path} {value:.3g}" for path, value in trial["values"].items())
    name = f"{search['variant']} at {search['size']}" if len(plan.study.size_names) > 1 else search["variant"]
    by = amount(better, metric=search["metric"])
    said = f"the search of {name} pruned {values}, which is {by} better than what it chose when trained on"
    level = "serious" if better > plan.study.decide.margin else "note"
    yield Flag("pruned", level, search["variant"], search["size"], said)


def _outlying(variant: str, size: str, *, plan: Plan, records: Sequence[RunRecord], metric: str) -> Iterator[Flag]:
    """A seed that lies further from the others of its cell than chance allows."""
    runs = of_cell(records, variant=variant, size=size).values()
    metric = fitting(metric, runs=runs)
    values = _finished(runs, metric=metric)
    place = outlier(list(values.values()), alpha=OUTLIER_ALPHA)
    if place is None:
        return
    seed, value = list(values.items())[place]
    others = [other for at, other in values.items() if at != seed]
    off = value - sum(others) / len(others)
    distance = abs(value - float(np.mean(list(values.values())))) / float(np.std(list(values.values()), ddof=1))
    critical = grubbs_critical(len(values), alpha=OUTLIER_ALPHA)
    test = f"Grubbs' G = {distance:.3f}, over {critical:.3f}"
    where = f"{amount(abs(off), metric=metric)} {'over' if off > 0.0 else 'under'} the mean of its other {len(others)} seeds"
    rest = "nothing is removed, and every interval with it is wide because of it"
    said = f"seed {seed} of {_name(variant, size, plan=plan)} lies {where} on {metric} ({test}): {rest}"
    yield Flag("outlier", "note", variant, size, said)


def _finished(runs: Iterable[RunRecord], *, metric: str) -> dict[int, float]:
    """The finite final values by seed."""
    found = {run.seed: final_value(run, metric=metric) for run in runs}
    return {seed: value for seed, value in found.items() if value is not None and math.isfinite(value)}


def _name(variant: str, size: str, *, plan: Plan) -> str:
    return f"{variant} at {size}" if len(plan.study.size_names) > 1 else variant
