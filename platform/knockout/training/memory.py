"""The most memory that tensors take at one time in a training step: weights, gradients, moments and activations.

The invariant: measuring changes nothing that a run computes, and on the CPU equal steps come to equal bytes. Exams are left
out, as they are of tokens_per_second: their batches are not training's.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class PeakMemory(ABC):
    """Of the steps that are counted."""

    most = 0
    """The most bytes that were in use at one time in any of them."""

    @abstractmethod
    def counted(self, network: nn.Module, *, optimizer: torch.optim.Optimizer) -> AbstractContextManager[None]:
        """While entered, one optimizer step of a network is taken, or the last micro-batch of one."""


class CudaMemory(PeakMemory):
    """Of tensors on the GPU, as torch's allocator counts them."""

    @contextmanager
    def counted(self, network: nn.Module, *, optimizer: torch.optim.Optimizer) -> Iterator[None]:
        """See PeakMemory."""
        torch.cuda.reset_peak_memory_stats()
        yield
        self.most = max(self.most, torch.cuda.max_memory_allocated())


class TensorMemory(PeakMemory):
    """Of tensors on the CPU, where torch's allocator keeps no count and the size of a process is that of its heap.

    What an operation takes for itself while it runs is not seen, and a few gradients are added up beside each other while
    torch is watched, in place else: the count is within 3 % of what the allocator gives out. Weights that sharding gathers
    count until they are dropped, though it empties them before.
    """

    @contextmanager
    def counted(self, network: nn.Module, *, optimizer: torch.optim.Optimizer) -> Iterator[None]:
        """See PeakMemory."""
        with LiveTensors() as live:
            for tensor in _held(network, optimizer=optimizer):
                live.add(tensor)
            yield
        self.most = max(self.most, live.most)


class LiveTensors(TorchDispatchMode):
    """Counts bytes from the making of a tensor to its end; those that tensors share count once."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.most = 0
        self.storages: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def add(self, tensor: Tensor) -> None:
        """Count a tensor from now on, unless its storage is counted."""
        storage = (tensor.to_local() if isinstance(tensor, DTensor) else tensor).untyped_storage()
        key, size = id(storage), storage.nbytes()
        if key in self.storages:
            return

        def end(_: object) -> None:
            del self.storages[key]
            self.bytes -= size

        self.storages[key] = weakref.ref(storage, end)
        self.bytes += size
        self.most = max(self.most, self.bytes)

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation, and count the tensors that it gives."""
        given = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(given):
            if isinstance(leaf, Tensor):
                self.add(leaf)
        return given


def peak_memory(*, device: str) -> PeakMemory:
    """What counts on the device of a run."""
    return CudaMemory() if device == "cuda" else TensorMemory()


def _held(network: nn.Module, *, optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    """What is there before a step: weights, buffers, moments, and gradients that are yet to be added to or dropped."""
    yield from network.buffers()
    for parameter in network.parameters():
        yield parameter
        if parameter.grad is not None:
            yield parameter.grad
    for state in optimizer.state.values():
        yield from (value for value in state.values() if isinstance(value, Tensor))
