"""How tokens read one another.

The invariant: every score goes through torch's scaled_dot_product_attention, so the mask is a setting and
never a tensor that a part could forget.

Legend: B batch, T tokens, D width, H query heads, G key/value heads, K head width.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from knockout.declare.architecture import Architecture, HeadLayout, head_layout
from knockout.model.linear import Linear


class Attention(nn.Module):
    """softmax(Q K^T / sqrt(K)) V in every head, then one map (Vaswani et al. 2017, equation 1).

    With fewer key/value heads than query heads, each serves a run of neighbouring query heads (Ainslie et al.
    2023).
    """

    def __init__(
        self,
        width: int,
        *,
        layout: HeadLayout,
        causal: bool,
        bias: bool,
        dropout: float,
        rotate: nn.Module,
    ) -> None:
        super().__init__()
        query_width = layout.num_heads * layout.head_width
        kv_width = layout.num_kv_heads * layout.head_width
        self.layout, self.causal, self.dropout = layout, causal, dropout
        self.query = Linear(width, query_width, bias=bias)
        self.key = Linear(width, kv_width, bias=bias)
        self.value = Linear(width, kv_width, bias=bias)
        self.output = Linear(query_width, width, bias=bias)
        self.rotate = rotate

    def forward(self, x_BTD: Tensor) -> Tensor:
        """x_BTD to what each token has read, y_BTD."""
        query_BHTK = self.rotate(self._heads(self.query(x_BTD)))
        key_BGTK = self.rotate(self._heads(self.key(x_BTD)))
        value_BGTK = self._heads(self.value(x_BTD))
        read_BHTK = F.scaled_dot_product_attention(
            query_BHTK,
            key_BGTK,
            value_BGTK,
            is_causal=self.causal,
            dropout_p=self.dropout if self.training else 0.0,
            enable_gqa=self.layout.num_kv_heads < self.layout.num_heads,
        )
        return self.output(read_BHTK.transpose(1, 2).flatten(2))

    def _heads(self, x_BTD: Tensor) -> Tensor:
        return x_BTD.unflatten(-1, (-1, self.layout.head_width)).transpose(1, 2)


def build_attention(architecture: Architecture, *, rotate: nn.Module) -> Attention | None:
    """The declared attention, or None where there is none; `rotate` acts on queries and keys."""
    layout = head_layout(architecture)
    if layout is None:
        return None
    return Attention(
        architecture.width,
        layout=layout,
        causal=architecture.attention.causal,
        bias=architecture.bias,
        dropout=architecture.dropout,
        rotate=rotate,
    )
