"""The names under which Prefect knows what runs on a pool."""

from __future__ import annotations

from knockout.services.catalog import POOL


def deployment_name(name: str, *, pool: str) -> str:
    """The name of a deployment on a pool; the default pool's are called as prefect.yaml has them."""
    return name if pool == POOL else f"{name} on {pool}"


def full_name(name: str, *, pool: str) -> str:
    """The same with its flow, as Prefect looks a deployment up."""
    return f"{name}/{deployment_name(name, pool=pool)}"
