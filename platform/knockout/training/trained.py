"""A run's network as its training left it.

The invariant: the weights are those that the sealed result names.
"""

from __future__ import annotations

from pathlib import Path

import torch

from knockout.declare.architecture import Architecture
from knockout.errors import RunError
from knockout.model import Network, build
from knockout.training.believing import foreign
from knockout.training.result import read_result
from knockout.training.spec import WEIGHTS, read_spec


def load_network(folder: Path, *, architecture: Architecture | None = None) -> Network:
    """The trained network of the run in `folder`, in evaluation mode on the CPU.

    `architecture` is the run's own but for what holds no weights; by default the run's own.

    Raises:
        RunError: the run has no sealed result, its files are damaged or another run's, or its weights were removed.
    """
    result = read_result(folder)
    if result is None:
        raise RunError(f"{folder} holds no finished run: its result is missing or damaged")
    if WEIGHTS not in result["files"]:
        raise RunError(f"{folder} has no weights any more: `knockout gc --weights` removed them")
    if (stranger := foreign(folder)) is not None:
        raise RunError(f"{folder}: {stranger}; `knockout doctor` tells more")
    spec = read_spec(folder)
    network = build(architecture or spec.architecture, seed=spec.seed)
    state = torch.load(folder / WEIGHTS, map_location="cpu", weights_only=True)
    network.load_state_dict(state["network"])
    return network.eval()
