"""The deployment `training` of a pool whose runs rest instead of training: what a run costs on a pool is measured with it.

The invariant: everything else is what it is for a run that trains.
"""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State

from bringing import bring_here
from knockout.declare.parallelism import Strategy
from knockout.submission.single import Order
from knockout.training.launcher import RestingNursery
from pools.deploying import deploy_from

ENTRYPOINT = "flows/resting.py:training"


@flow(name="training", persist_result=False)
def training(
    submission: str,
    run: str,
    workspace: str | None = None,
    run_seconds: float | None = None,
    devices: int = 1,
    strategy: Strategy = "ddp",
) -> State[Any]:
    """See the flow of the same name that trains."""
    order = Order(submission, run, run_seconds, devices, strategy)
    return bring_here(order, workspace=workspace, nursery=RestingNursery)


def deploy_resting(*, pool: str) -> None:
    """Have the pool's runs rest. Raises ServiceError."""
    deploy_from(ENTRYPOINT, name="training", pool=pool)
