"""Weights, gradients and moments in parts, one on each rank (Zhao et al. 2023, "PyTorch FSDP"; torch's fully_shard).

The invariant: what a run leaves (checkpoints, weights) holds whole tensors, whatever they were cut into while it ran; so a
run goes on with any number of devices.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

STACKS = ("blocks", "encoder")
"""Of a network: each of their blocks is gathered by itself, and what stands around them all at once."""


def shard(network: nn.Module, *, mesh: DeviceMesh) -> None:
    """Cut every parameter over the ranks of a mesh."""
    for name, stack in network.named_children():
        for block in stack.children() if name in STACKS else ():
            fully_shard(block, mesh=mesh)
    fully_shard(network, mesh=mesh)


def whole(value: Tensor) -> Tensor:
    """A tensor of which each rank has a part, on all of them; any other as it is. Every rank must ask."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def cut(state: dict[str, Any], *, parameters: list[Tensor]) -> dict[str, Any]:
    """An optimiser's state with whole tensors, cut as the parameters are, which stand in the order of its groups."""
    moments = {
        number: {name: _cut_like(parameters[number], value=value) for name, value in of_one.items()}
        for number, of_one in state["state"].items()
    }
    return {**state, "state": moments}


@contextmanager
def gathered(network: nn.Module) -> Iterator[None]:
    """While entered, a sharded network's `forward` may be called by itself, by all ranks at once."""
    if not isinstance(network, FSDPModule):  # a run that goes on from its last step trains no more
        yield
        return
    network.unshard()
    try:
        yield
    finally:
        network.reshard()


def _cut_like(parameter: Tensor, *, value: Any) -> Any:
    """A moment in the parts of its parameter; a count of steps as it is."""
    if isinstance(parameter, DTensor) and isinstance(value, Tensor) and value.shape == parameter.shape:
        return distribute_tensor(value.to(parameter.device), parameter.device_mesh, parameter.placements)
    return value
