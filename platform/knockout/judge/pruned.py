"""Whether pruning changed what a search chose, as far as pruned trials were trained to their ends all the same.

The invariant: what a trial came to that was not pruned is compared with what a pruned one would have come to, on the same
seeds and the same metric.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Search = Mapping[str, Any]
"""The search of one cell, as a report's facts have it."""


def pruned_trials(searches: Iterable[Search]) -> list[dict[str, Any]]:
    """The trials that were pruned."""
    return [trial for search in searches for trial in search["trials"] if trial["state"] == "pruned"]


def in_full(trials: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those of them that were trained to their ends too: `in_full` says with which loss, None for one that diverged."""
    return [trial for trial in trials if trial.get("in_full") is not None]


def chosen_trial(search: Search) -> Mapping[str, Any]:
    """The best of the trials that were not pruned."""
    return min((trial for trial in search["trials"] if trial["state"] == "done"), key=lambda trial: trial["loss"])


def overlooked(search: Search) -> Mapping[str, Any] | None:
    """The pruned trial that would have been chosen; None where none is known to be better than what was chosen."""
    best = min(
        (trial for trial in in_full(pruned_trials([search])) if trial["in_full"]["loss"] is not None),
        key=lambda trial: trial["in_full"]["loss"],
        default=None,
    )
    return best if best is not None and best["in_full"]["loss"] < chosen_trial(search)["loss"] else None
