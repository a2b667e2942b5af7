"""The Lightning module: loss, optimiser, learning rate, clipping and the finite check of each optimizer step.

The invariant: everything that depends on time depends on the optimizer step of the whole run, which Lightning does not
know after a resume; `step` is the one counter.
B: windows · T: tokens · V: vocabulary
"""

from __future__ import annotations

import math
from typing import Any

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from knockout.declare.recipe import Recipe
from knockout.training.probes import Probes
from knockout.training.schedule import learning_rate
from knockout.training.seeds import derived
from knockout.training.spec import RunSpec


class Diverged(Exception):
    """A loss or a gradient norm is not finite. Carries the optimizer step, counted from 1, at which it happened."""

    def __init__(self, *, step: int, what: str) -> None:
        self.step = step
        self.what = what
        super().__init__(f"{what} is not finite at step {step}")


class LanguageModule(pl.LightningModule):
    """Trains a network on next-token prediction."""

    def __init__(self, network: nn.Module, *, spec: RunSpec, step: int, optimizer_state: dict[str, Any] | None) -> None:
        super().__init__()
        self.network = network
        self.spec = spec
        self.step = step
        self.optimizer_state = optimizer_state
        self.probes = Probes(network.blocks)  # type: ignore[arg-type]
        self.evaluation_steps = set(spec.recipe.evaluation_steps(context=spec.architecture.context))
        self.micro_losses: list[Tensor] = []
        self.gradient_norm = math.nan
        self.rate = math.nan

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The recipe's optimiser, with the state it had at the step that the run goes on from."""
        optimizer = build_optimizer(self.network, recipe=self.spec.recipe, device=self.device)
        if self.optimizer_state is not None:
            optimizer.load_state_dict(self.optimizer_state)
            self.optimizer_state = None
        return optimizer

    def on_train_batch_start(self, batch: Tensor, batch_idx: int) -> None:
        """Set the step's learning rate and dropout stream; arm the probes on a step that is evaluated."""
        first = not self.micro_losses
        if first:
            self.rate = learning_rate(self.spec.recipe, step=self.step, num_steps=self.spec.num_steps)
            for group in self.trainer.optimizers[0].param_groups:
                group["lr"] = self.rate
        if self.spec.architecture.dropout:
            torch.manual_seed(derived(self.spec.seed, "dropout", self.step, len(self.micro_losses)))
        if first and self.step + 1 in self.evaluation_steps:
            self.probes.arm()

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        """Mean next-token loss of a micro-batch [B, T + 1], with the model's auxiliary loss."""
        prediction = self.network(batch[:, :-1])
        logits_BTV = prediction.logits_BTV
        loss = F.cross_entropy(logits_BTV.float().flatten(0, 1), batch[:, 1:].flatten())
        self.micro_losses.append(loss.detach())
        return loss + prediction.auxiliary_loss

    def configure_gradient_clipping(
        self, optimizer: torch.optim.Optimizer, gradient_clip_val: Any = None, gradient_clip_algorithm: Any = None
    ) -> None:
        """Clip by global norm and check that loss and norm are finite, once an optimizer step."""
        if self.probes.armed:
            self.probes.gradients()
        limit = self.spec.recipe.clip
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), math.inf if limit is None else limit)
        self.gradient_norm = norm.item()
        if not math.isfinite(sum(loss.item() for loss in self.micro_losses)):
            raise Diverged(step=self.step + 1, what="the training loss")
        if not math.isfinite(self.gradient_norm):
            raise Diverged(step=self.step + 1, what="the gradient norm")

    def take_step(self) -> dict[str, float]:
        """Count the optimizer step that has just ended, and give its metrics."""
        self.step += 1
        loss = sum(loss.item() for loss in self.micro_losses) / len(self.micro_losses)
        self.micro_losses.clear()
        return {"train_loss": loss, "gradient_norm": self.gradient_norm, "learning_rate": self.rate}


def build_optimizer(network: nn.Module, *, recipe: Recipe, device: torch.device) -> torch.optim.Optimizer:
    """AdamW in which matrices and tables decay, and vectors (biases, gains) do not."""
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    constants = recipe.optimizer
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": constants.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups,
        lr=recipe.learning_rate,
        betas=(constants.beta1, constants.beta2),
        eps=constants.eps,
        fused=device.type in ("cpu", "cuda"),
    )
