"""The processes that share one run, a device each.

The invariant: every rank comes to the same collective in the same order, so whatever decides a step's course (a loss that
is not finite, the wish to stop, the time for a checkpoint) is agreed on and not measured by one alone.

Equal numbers: all ranks draw the question of a whole micro-batch, and each answers its own windows of it; every window
asks for as many answers as any other, so the mean over ranks of their means is the mean over all answers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from knockout.errors import RunError
from knockout.model.objective import Question
from knockout.training import sharding


class Ranks(ABC):
    """All of them, as one of them sees them."""

    rank: int
    """This one's number, from 0."""
    size: int
    """How many there are."""

    @property
    def is_first(self) -> bool:
        """Whether this rank writes what the run leaves."""
        return self.rank == 0

    @property
    @abstractmethod
    def stream(self) -> tuple[str | int, ...]:
        """What the names of this rank's random streams end in."""

    @abstractmethod
    def share(self, question: Question) -> Question:
        """This rank's windows of a micro-batch."""

    @abstractmethod
    def mean(self, value: Tensor) -> Tensor:
        """The mean over ranks of a tensor."""

    @abstractmethod
    def total(self, value: Tensor) -> Tensor:
        """The sum over ranks of a tensor."""

    @abstractmethod
    def most(self, values: Sequence[int]) -> list[int]:
        """The largest over ranks of each number."""

    @abstractmethod
    def shard(self, network: nn.Module, *, mesh: DeviceMesh | None) -> None:
        """Leave of a network what this rank holds."""

    def whole(self, value: Tensor) -> Tensor:
        """A parameter, gradient or moment in one piece, on every rank."""
        return value

    def gathered(self, network: nn.Module) -> AbstractContextManager[object]:
        """While entered, all ranks may call a network's `forward` by itself."""
        return nullcontext()

    def held(self, state: dict[str, Any], *, parameters: list[Tensor]) -> dict[str, Any]:
        """What this rank holds of an optimiser's state; the parameters stand in the order of its groups."""
        return state

    def whole_state(self, state: Any) -> Any:
        """The state of a network or an optimiser with whole tensors."""
        match state:
            case Tensor():
                return self.whole(state)
            case dict():
                return {key: self.whole_state(value) for key, value in state.items()}
            case list():
                return [self.whole_state(value) for value in state]
            case _:
                return state


class Alone(Ranks):
    """One process has all windows."""

    rank, size = 0, 1

    @property
    def stream(self) -> tuple[str | int, ...]:
        """See Ranks."""
        return ()

    def shard(self, network: nn.Module, *, mesh: DeviceMesh | None) -> None:
        """See Ranks."""

    def share(self, question: Question) -> Question:
        """See Ranks."""
        return question

    def mean(self, value: Tensor) -> Tensor:
        """See Ranks."""
        return value

    def total(self, value: Tensor) -> Tensor:
        """See Ranks."""
        return value

    def most(self, values: Sequence[int]) -> list[int]:
        """See Ranks."""
        return list(values)


ALONE = Alone()


@dataclass(frozen=True)
class Copies(Ranks):
    """One of several processes in torch's default process group, each with a whole copy of the network."""

    rank: int
    size: int
    device: str
    """Where small numbers are exchanged: cpu or cuda."""

    @property
    def stream(self) -> tuple[str | int, ...]:
        """See Ranks."""
        return ("rank", self.rank)

    def shard(self, network: nn.Module, *, mesh: DeviceMesh | None) -> None:
        """See Ranks."""

    def share(self, question: Question) -> Question:
        """See Ranks."""
        windows, rest = divmod(len(question.shown_BT), self.size)
        if rest:
            raise RunError(f"{self.size} devices do not divide the {len(question.shown_BT)} windows of a micro-batch")
        return question.split(windows)[self.rank]

    def mean(self, value: Tensor) -> Tensor:
        """See Ranks."""
        return self.total(value) / self.size

    def total(self, value: Tensor) -> Tensor:
        """See Ranks."""
        summed = value.clone()
        dist.all_reduce(summed)
        return summed

    def most(self, values: Sequence[int]) -> list[int]:
        """See Ranks."""
        largest = torch.tensor(values, dtype=torch.int64, device=self.device)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        return largest.tolist()


class Parts(Copies):
    """One of several processes, each with a part of every parameter, gradient and moment."""

    def shard(self, network: nn.Module, *, mesh: DeviceMesh | None) -> None:
        """See Ranks."""
        assert mesh is not None
        sharding.shard(network, mesh=mesh)

    def whole(self, value: Tensor) -> Tensor:
        """See Ranks."""
        return sharding.whole(value)

    def gathered(self, network: nn.Module) -> AbstractContextManager[object]:
        """See Ranks."""
        return sharding.gathered(network)

    def held(self, state: dict[str, Any], *, parameters: list[Tensor]) -> dict[str, Any]:
        """See Ranks."""
        return sharding.cut(state, parameters=parameters)
