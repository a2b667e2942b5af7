"""The Lightning module: loss, optimiser, learning rate, clipping and the finite check of each optimizer step.

The invariant: everything that depends on time depends on the optimizer step of the whole run, which Lightning does not
know after a resume; `step` is the one counter. A step whose loss or gradient norm is not finite changes no weight, nor
does any after it, so it makes no difference how many steps later that is read from a GPU.
B: windows · T: tokens · V: vocabulary
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from knockout.declare.architecture import Architecture
from knockout.declare.recipe import Recipe
from knockout.model import Network
from knockout.model.balance import end_step
from knockout.model.initialise import Learning, learning_of
from knockout.model.mixture import count_over
from knockout.model.objective import ask
from knockout.training.loss import losses
from knockout.training.memory import PeakMemory
from knockout.training.probes import Probes
from knockout.training.ranks import ALONE, Ranks
from knockout.training.schedule import learning_rate
from knockout.training.seeds import derived
from knockout.training.spec import RunSpec


class Diverged(Exception):
    """A loss or a gradient norm is not finite. Carries the optimizer step, counted from 1, at which it happened."""

    def __init__(self, *, step: int, what: str) -> None:
        self.step = step
        self.what = what
        super().__init__(f"{what} is not finite at step {step}")


@dataclass(frozen=True, eq=False)
class Step:
    """An optimizer step that has been taken; its numbers may still be under way on the device."""

    number: int
    """Counted from 1, over the whole run."""
    learning_rate: float
    measured: Tensor
    """Training loss and gradient norm before clipping [2], float64, on the device."""


def read_steps(steps: Sequence[Step]) -> Iterator[tuple[int, dict[str, float]]]:
    """The metrics of each step, in order; waits for the device once for all of them.

    Raises:
        Diverged: at the first step that is not finite, after those before it were given.
    """
    if not steps:
        return
    for step, (loss, norm) in zip(steps, torch.stack([step.measured for step in steps]).tolist(), strict=True):
        if not math.isfinite(loss):
            raise Diverged(step=step.number, what="the training loss")
        if not math.isfinite(norm):
            raise Diverged(step=step.number, what="the gradient norm")
        yield step.number, {"train_loss": loss, "gradient_norm": norm, "learning_rate": step.learning_rate}


def as_declared(recipe: Recipe) -> AbstractContextManager[object]:
    """Run networks uncompiled: compiled ones pass the probes' hooks by, and would be compiled anew for an exam's shapes."""
    return torch.compiler.set_stance("force_eager") if recipe.compile else nullcontext()


class LanguageModule(pl.LightningModule):
    """Trains a network on next-token prediction."""

    def __init__(
        self,
        network: Network,
        *,
        spec: RunSpec,
        step: int,
        optimizer_state: dict[str, Any] | None,
        memory: PeakMemory,
        ranks: Ranks = ALONE,
        end_of_text: int | None = None,
    ) -> None:
        """`end_of_text` is the token that divides a window into documents, where each is read by itself."""
        super().__init__()
        self.ranks = ranks
        self.network = network
        self.spec = spec
        self.end_of_text = end_of_text
        self.step = step
        self.optimizer_state = optimizer_state
        self.memory = memory
        self.probes = Probes(network.blocks, ranks=ranks)  # type: ignore[arg-type]
        self.evaluation_steps = set(spec.recipe.evaluation_steps(context=spec.architecture.context))
        self.micro_losses: list[Tensor] = []
        self.parameters_to_clip: list[Tensor] = []
        self.measured: Tensor | None = None
        self.broken: Tensor | None = None
        self.rate = math.nan

    def configure_model(self) -> None:
        """Give this rank what it holds of the network, and have mixtures count the tokens of all ranks."""
        self.ranks.shard(self.network, mesh=self.device_mesh)
        count_over(self.network, total=self.ranks.total)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The recipe's optimiser, with the state it had at the step that the run goes on from."""
        self.parameters_to_clip = list(self.network.parameters())
        optimizer = build_optimizer(
            self.network, architecture=self.spec.architecture, recipe=self.spec.recipe, device=self.device
        )
        if self.optimizer_state is not None:
            grouped = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            optimizer.load_state_dict(self.ranks.held(self.optimizer_state, parameters=grouped))
            self.optimizer_state = None
        return optimizer

    def on_train_batch_start(self, batch: Tensor, batch_idx: int) -> None:
        """Set the step's learning rate and dropout stream; arm the probes on a step that is evaluated."""
        first = not self.micro_losses
        if first:
            self.rate = learning_rate(self.spec.recipe, step=self.step, num_steps=self.spec.num_steps)
            for group in self.trainer.optimizers[0].param_groups:
                group["lr"] = self.rate * group["rate_factor"]
        if self.spec.architecture.dropout:
            torch.manual_seed(derived(self.spec.seed, "dropout", self.step, len(self.micro_losses), *self.ranks.stream))
        if first and self.step + 1 in self.evaluation_steps:
            self.probes.arm()

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        """The recipe's loss over a micro-batch of windows [B, T + 1], with the model's auxiliary loss."""
        seed, part = derived(self.spec.seed, "objective", self.step), len(self.micro_losses)
        asked = {"architecture": self.spec.architecture, "seed": seed, "part": part, "end_of_text": self.end_of_text}
        question = self.ranks.share(ask(batch, **asked))
        with as_declared(self.spec.recipe) if self.probes.armed else nullcontext():
            prediction = question.put_to(self.network)
        logits_NV = question.logits_NV(prediction).float()
        found = losses(self.spec.recipe.loss, logits_NV=logits_NV, answers_N=question.answers_N)
        self.micro_losses.append(found.nats.detach())
        return found.minimised + prediction.auxiliary_loss

    def optimizer_step(
        self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Callable[[], Any] | None = None
    ) -> None:
        """Count the memory of a step that is evaluated: it runs uncompiled, and so with the same tensors, on any day."""
        counted = self.memory.counted(self.network, optimizer=self.trainer.optimizers[0])
        with counted if self.probes.armed else nullcontext():
            super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)

    def configure_gradient_clipping(
        self, optimizer: torch.optim.Optimizer, gradient_clip_val: Any = None, gradient_clip_algorithm: Any = None
    ) -> None:
        """Clip by global norm, and keep the optimizer from stepping once a loss or norm was not finite."""
        if self.probes.armed:
            self.probes.gradients()
        limit = self.spec.recipe.clip
        norm = torch.nn.utils.clip_grad_norm_(self.parameters_to_clip, math.inf if limit is None else limit)
        loss = self.ranks.mean(torch.stack(self.micro_losses).double().mean())
        measured = torch.stack((loss, self.ranks.whole(norm).double()))
        broken = (~measured.isfinite().all()).float()
        self.measured = measured
        self.broken = broken if self.broken is None else torch.maximum(self.broken, broken)
        # As torch's GradScaler does it: fused AdamW reads this on the device and leaves weights and moments alone.
        self.trainer.optimizers[0].found_inf = self.broken  # type: ignore[attr-defined]

    def take_step(self) -> Step:
        """Count the optimizer step that has just ended."""
        assert self.measured is not None
        end_step(self.network)
        self.step += 1
        self.micro_losses.clear()
        return Step(self.step, self.rate, self.measured)


def build_optimizer(
    network: nn.Module, *, architecture: Architecture, recipe: Recipe, device: torch.device
) -> torch.optim.Optimizer:
    """AdamW whose groups share weight decay (weights of maps and tables have it) and learning rate.

    A group's `rate_factor` is what the recipe's rate is multiplied by for it: 1, but for muP's maps.
    """
    parameters = dict(network.named_parameters())
    groups: dict[Learning, list[Tensor]] = {Learning(1.0, decays=True): [], Learning(1.0, decays=False): []}
    for name, learning in learning_of(network, architecture=architecture).items():
        groups.setdefault(learning, []).append(parameters[name])
    constants = recipe.optimizer
    return torch.optim.AdamW(
        [
            {
                "params": members,
                "lr": recipe.learning_rate * learning.rate_factor,
                "rate_factor": learning.rate_factor,
                "weight_decay": constants.weight_decay if learning.decays else 0.0,
            }
            for learning, members in groups.items()
        ],
        betas=(constants.beta1, constants.beta2),
        eps=constants.eps,
        fused=device.type in ("cpu", "cuda"),
    )
