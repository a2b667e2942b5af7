"""The searches behind a report in words: how they searched, and what pruning saved.

The invariant: what pruning saved follows from the steps at which trials were pruned, however far anybody has trained their
runs, before or since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from knockout.judge.pruned import Search, in_full, overlooked, pruned_trials
from knockout.judge.sentences import listed

NOT_RANGES = ("trials", "seeds", "sampler", "pruner", "extend")
"""Keys of `tune` that are no setting's path."""


def saved_share(searches: Iterable[Search]) -> float:
    """Share of the tokens of all trials in full that lie after the steps at which trials were pruned, in [0, 1)."""
    full = spared = 0.0
    for search in searches:
        whole = _finished(search)
        shares = [_spared(trial, whole=whole) for trial in search["trials"]]
        full += whole["tokens"] * len(shares)
        spared += whole["tokens"] * sum(shares)
    return spared / full if full else 0.0


def sentence(search: Search) -> str:
    """`6 trials, 1 of them beyond the range, 2 pruned: 41% of the tuning tokens saved`."""
    trials = search["trials"]
    beyond = sum(trial["extends"] is not None for trial in trials)
    said = f"{len(trials)} trials"
    said += f", {beyond} of them beyond the range" if beyond else ""
    return said + (f", {saving([search])}" if num_pruned([search]) else "")


def saving(searches: Sequence[Search]) -> str:
    """`2 pruned: 41% of the tuning tokens saved`."""
    return f"{num_pruned(searches)} pruned: {saved_share(searches):.0%} of the tuning tokens saved"


def num_pruned(searches: Iterable[Search]) -> int:
    """How many trials were pruned."""
    return len(pruned_trials(searches))


def pruning_check(searches: Sequence[Search]) -> str | None:
    """What pruned trials say that were trained to their ends all the same; None where none was.

    `all 17 pruned trials were trained to their ends as well: no search would have chosen otherwise`.
    """
    pruned = pruned_trials(searches)
    if not (known := in_full(pruned)):
        return None
    trained = f"all {len(pruned)}" if len(known) == len(pruned) else f"{len(known)} of {len(pruned)}"
    others = [search["variant"] for search in searches if overlooked(search) is not None]
    who = f"the {'search' if len(others) == 1 else 'searches'} of {listed(others)}" if others else "no search"
    return f"{trained} pruned trials were trained to their ends as well: {who} would have chosen otherwise"


def study_saving(searches: Sequence[Search]) -> str:
    """`30 trials, 12 pruned: 41% of the tuning tokens saved`, over all cells together."""
    num_trials = sum(len(search["trials"]) for search in searches)
    return f"{num_trials} trials, {saving(searches) if num_pruned(searches) else 'none pruned'}"


def settings(tune: Mapping[str, Any]) -> str:
    """How every cell was searched, in one line; `tune` is the declaration with every default."""
    ranges = [_range(path, value) for path, value in tune.items() if path not in NOT_RANGES]
    trials = f"{tune['trials']} trials a cell on {tune['seeds']} {'seed' if tune['seeds'] == 1 else 'seeds'} of their own"
    beyond = f"up to {tune['extend']} more beyond an end" if tune["extend"] else "none beyond the ends"
    return f"{_kind(tune['sampler'])} over {', '.join(ranges)}, {trials}, {beyond}, pruner {_kind(tune['pruner'])}"


def _finished(search: Search) -> Mapping[str, Any]:
    """A trial that ran to its end, as the chosen one did; one whose evaluations are known, where any are."""
    done = [trial for trial in search["trials"] if trial["state"] == "done"]
    return next((trial for trial in done if trial["last"]), done[0])


def _spared(trial: Mapping[str, Any], *, whole: Mapping[str, Any]) -> float:
    """Share of a trial's steps, over its seeds, that its pruning spared; only the first seed of a pruned one was begun."""
    if trial["state"] != "pruned":
        return 0.0
    return 1.0 - trial["last"][0] / (whole["last"][0] * len(trial["identities"]))


def _range(path: str, range_: Mapping[str, Any]) -> str:
    return f"{path} {range_['low']:g} to {range_['high']:g}{'' if range_['log'] else ' (linear)'}"


def _kind(member: Mapping[str, Any]) -> str:
    """`slack (startup 1, after 0.25, slack 0.3)`."""
    options = ", ".join(f"{name} {value:g}" for name, value in member.items() if name != "kind")
    return f"{member['kind']} ({options})" if options else member["kind"]
