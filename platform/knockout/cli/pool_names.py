"""Pools that a command names: refused before anything is written, and what is said where nobody works for one.

The invariant: a pool is made by its worker, or by hand, and never by a slip in its name.
"""

from __future__ import annotations

import sys


def check_pool_name(pool: str) -> None:
    """Raises InputError when no pool can have this name."""
    from knockout.declare.schedules import wrong_in_pool
    from knockout.errors import InputError

    if (wrong := wrong_in_pool(pool)) is not None:
        raise InputError(f"--pool: '{pool}' {wrong}")


def check_pool(pool: str, *, server: str) -> None:
    """Raises InputError when a Prefect server has no such pool, ServiceError when it does not answer."""
    from knockout.cli.flows import PATIENT, load_flow

    check_pool_name(pool)
    load_flow("pools.inventory", server=server, retries=PATIENT).check_pool(pool)


def say_unserved(pool: str) -> None:
    """Say that no worker of a pool is online, and how to have one."""
    import shlex

    print(f"no worker of pool '{pool}' is online: `knockout worker --pool {shlex.quote(pool)}` is one", file=sys.stderr)
