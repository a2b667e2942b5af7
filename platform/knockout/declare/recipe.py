"""How a model is trained: optimiser, schedule, token budget, precision.

Every field bears identity: two runs with different recipes are different runs.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from knockout.declare.base import Conflict, Declaration, NonNegative, Positive, PositiveFloat, Tokens, conflicts

Decay = Annotated[float, Field(ge=0.0, lt=1.0)]


class AdamW(Declaration):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019); matrices decay, vectors do not."""

    kind: Literal["adamw"] = "adamw"
    beta1: Decay = 0.9
    """Decay rate of the first moment, in [0, 1)."""
    beta2: Decay = 0.95
    """Decay rate of the second moment, in [0, 1)."""
    eps: PositiveFloat = 1e-8
    """Added to the root of the second moment."""
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.1
    """Decay of matrices for each unit of learning rate."""


class Cosine(Declaration):
    """From the peak down to `final` times the peak, along half a cosine, at the last step."""

    kind: Literal["cosine"] = "cosine"
    final: Annotated[float, Field(ge=0.0, le=1.0)] = 0.1
    """Learning rate at the last step, as a fraction of the peak, in [0, 1]."""


class Constant(Declaration):
    """The peak learning rate, after the warm-up, to the end."""

    kind: Literal["constant"] = "constant"


Schedule = Annotated[Cosine | Constant, Field(discriminator="kind")]


class CrossEntropy(Declaration):
    """Minus the log of the right token's probability under a softmax, in nats."""

    kind: Literal["cross_entropy"] = "cross_entropy"
    z_loss: Annotated[float, Field(ge=0.0)] = 0.0
    """Weight of the squared log of the softmax's normaliser, 0 or more (Chowdhery et al. 2022, "PaLM", section 5: 1e-4)."""


class HardMargin(Declaration):
    """How far the right logit falls short of beating every other by the margin (Crammer & Singer 2001, section 3).

    As argmax does, it asks which token is best, and gives no probabilities: a network is judged by its cross-entropy
    all the same.
    """

    kind: Literal["hard_margin"] = "hard_margin"
    margin: PositiveFloat = 1.0
    """By how much the right logit is to beat the best of the others. Over 0."""


Loss = Annotated[CrossEntropy | HardMargin, Field(discriminator="kind")]


class ContiguousPacking(Declaration):
    """Windows run on across documents, and a token may read those of the documents before its own (Brown et al. 2020,
    appendix B)."""

    kind: Literal["contiguous"] = "contiguous"


class DocumentPacking(Declaration):
    """The same windows, in which every token reads its own document alone (Dubey et al. 2024, "The Llama 3 Herd of Models",
    section 3.2; Zhao et al. 2024, "Analysing the Impact of Sequence Composition on Language Model Pre-Training").

    An end-of-text token belongs to the document that it ends. Positions that are added to the stream are counted from a
    document's first token in the window (Krell et al. 2021, section 3.2), or its place would tell how long the documents
    before it are; rotary positions and ALiBi tell distances alone. The token after an end-of-text is asked for as any
    other, from the document before it: nothing else says that a text begins, and so both kinds sit the same exam. The
    exam, generation_loss and text that a run writes are under the same rule.
    """

    kind: Literal["documents"] = "documents"


Packing = Annotated[ContiguousPacking | DocumentPacking, Field(discriminator="kind")]


def _as_ever(packing: Packing) -> bool:
    """Recipes were contiguous before they could say so, and what they meant keeps its identity."""
    return isinstance(packing, ContiguousPacking)


class Recipe(Declaration):
    """A full declaration of how one run trains. One unit of progress everywhere: the optimizer step."""

    tokens: Tokens
    """Token budget of the run; steps = tokens / (batch × context), rounded down."""
    batch: Positive
    """Sequences an optimizer step sees, over all its micro-batches and devices."""
    learning_rate: PositiveFloat
    """Peak learning rate."""
    warmup_steps: NonNegative = 0
    """Steps over which the learning rate rises linearly from zero to its peak."""
    schedule: Schedule = Cosine()
    """What the learning rate does after the warm-up."""
    optimizer: AdamW = AdamW()
    """The optimiser and its constants."""
    loss: Loss = CrossEntropy()
    """What training minimises. The exam is cross-entropy always."""
    clip: PositiveFloat | None = 1.0
    """Largest global gradient norm; larger gradients are scaled down. null: no clipping."""
    accumulate: Positive = 1
    """Micro-batches that an optimizer step's batch is cut into; must divide batch."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """fp32, or bf16 autocast over float32 weights."""
    compile: bool = False
    """Whether the network is compiled with torch.compile."""
    shuffle_tokens: bool = False
    """Whether the tokens of training and exam stand in a random order: a control that leaves their frequencies to learn."""
    packing: Annotated[Packing, Field(exclude_if=_as_ever)] = ContiguousPacking()
    """Whether a token may read the documents before its own in a window."""
    evaluations: Positive = 8
    """How often the run is evaluated, evenly spaced, the last time at its last step."""

    @model_validator(mode="after")
    def _stands_together(self) -> Recipe:
        found: list[Conflict] = []
        if self.batch % self.accumulate:
            found.append(("accumulate", self.accumulate, f"must divide batch = {self.batch}"))
        conflicts("Recipe", found)
        return self

    def num_steps(self, *, context: int) -> int:
        """Optimizer steps of the run."""
        return self.tokens // (self.batch * context)

    def evaluation_steps(self, *, context: int) -> tuple[int, ...]:
        """Steps after which the run is evaluated, ascending and without repetition; the last is the last step."""
        steps = self.num_steps(context=context)
        return tuple(sorted({max(1, steps * i // self.evaluations) for i in range(1, self.evaluations + 1)}))
