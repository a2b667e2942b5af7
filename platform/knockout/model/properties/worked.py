"""The attention example that is worked by hand: 3 tokens, width 4, 2 heads of 2, with the causal mask.

The invariant: inputs and maps are the example's; every later number is computed here.

Legend: T tokens, D width, K head width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from knockout.declare.calculation import Step

NUM_HEADS = 2
INPUT_TD = torch.eye(3, 4, dtype=torch.float64)
QUERY_DD = torch.eye(4, dtype=torch.float64)
KEY_DD = torch.eye(4, dtype=torch.float64)[[1, 0, 2, 3]]
"""The first two units change places."""
VALUE_DD = 2 * torch.eye(4, dtype=torch.float64)

MADE_FROM: dict[Step, tuple[str, Step]] = {
    "scores": ("over the root of the head width 2", "products"),
    "masked": ("without later tokens", "scores"),
    "weights": ("under the softmax", "masked"),
    "outputs": ("as weights of the values", "weights"),
}
"""What a later step does, and with which numbers."""


def worked_step(step: Step, *, head: int | None) -> Tensor:
    """The numbers of one step, a matrix; for one head (1 or 2), its share.

    Queries, keys and values exist for the whole width; what follows them for a head only, the first if none is named.
    """
    projections = {"queries": INPUT_TD @ QUERY_DD, "keys": INPUT_TD @ KEY_DD, "values": INPUT_TD @ VALUE_DD}
    if step in projections:
        return projections[step] if head is None else _share(projections[step], head=head)
    query, key, value = (_share(part, head=head or 1) for part in projections.values())
    products = query @ key.T
    scores = products / query.shape[-1] ** 0.5
    masked = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
    weights = masked.softmax(-1)
    later = {
        "keys_transposed": key.T,
        "products": products,
        "scores": scores,
        "masked": masked,
        "weights": weights,
        "outputs": weights @ value,
    }
    return later[step]


def _share(x_TD: Tensor, *, head: int) -> Tensor:
    return x_TD.chunk(NUM_HEADS, dim=-1)[head - 1]
