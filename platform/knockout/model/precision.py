"""Where a running sum must not be rounded to the autocast's dtype."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch


def exact_products(device: torch.device) -> AbstractContextManager[object]:
    """Products in the dtype of their factors, whatever autocast says; meta tensors have no autocast."""
    return nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False)
