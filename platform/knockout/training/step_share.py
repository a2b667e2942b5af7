"""What reading a batch costs of a training step.

The invariant: the step is the least that training does (forward, backward, update, nothing recorded), so that the share is
rather too large than too small.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from statistics import median

import torch

from knockout.corpus.batches import batch
from knockout.corpus.reading import Split
from knockout.declare.load import load_size
from knockout.declare.settings import defaults
from knockout.model import build

STEPS, READS = 7, 200


def reading_share(split: Split, *, size: str) -> float:
    """Seconds of reading a batch as a fraction of those of a step of a size's default architecture, in one thread.

    Raises:
        DeclarationError: there is no such size.
    """
    architecture, recipe = defaults().over(load_size(size)).resolve()
    steps = count()

    def read() -> torch.Tensor:
        return torch.from_numpy(batch(split, seed=0, step=next(steps), batch=recipe.batch, context=architecture.context))

    network = build(architecture, seed=0)
    optimizer = torch.optim.AdamW(network.parameters())
    tokens_BT = read() % architecture.vocabulary

    def step() -> None:
        logits_BTV = network(tokens_BT[:, :-1]).logits_BTV
        loss = torch.nn.functional.cross_entropy(logits_BTV.flatten(0, 1), tokens_BT[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    torch.set_num_threads(1)
    return _median(read, times=READS) / _median(step, times=STEPS)


def _median(work: Callable[[], object], *, times: int) -> float:
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return median(seconds)
