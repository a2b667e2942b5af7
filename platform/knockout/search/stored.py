"""The searches in a workspace's database, for whoever keeps it in order.

The invariant: nothing is proposed or told here.
"""

from __future__ import annotations

from collections.abc import Iterator

import optuna

from knockout.search.cell import finished_trials
from knockout.search.storage import open_storage, telling
from knockout.search.trial import Trial


def searches(storage: str) -> Iterator[tuple[str, list[Trial]]]:
    """Every search by name, with its trials that have ended.

    Raises:
        WorkspaceError: the database is damaged, or cannot be read.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with telling(storage):
        names = sorted(optuna.get_all_study_names(open_storage(storage)))
    for name in names:
        yield name, finished_trials(storage, name=name)


def remove(storage: str, *, name: str) -> None:
    """Take a search and its trials out of the database.

    Raises:
        WorkspaceError: the database is damaged, or cannot be written.
    """
    with telling(storage):
        optuna.delete_study(study_name=name, storage=open_storage(storage))
