"""The product behind every linear map, and which library computes it.

torch's float32 product on x86 is MKL's, which on AMD processors runs at half of oneDNN's speed (115 against 250 GFLOP/s
on a core of an EPYC). There, float32 maps go through the oneDNN product that torch's own CPU compiler calls; everything
else (GPUs, autocast, compiled networks, other dtypes and processors) is `torch.nn.functional.linear`. Both give the same
numbers up to float32 rounding. The invariant: the choice follows from the processor, the build of torch, the device and
the dtype, never from a measurement, so a run and its continuation on one machine use the same product.

Legend: N rows (the leading axes, flattened), I inputs, O outputs.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

CPUINFO = Path("/proc/cpuinfo")

Kernels = Literal["onednn", "native"]


def linear(x: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """x [..., I] to x W^T + b [..., O]; `torch.nn.functional.linear` with the faster product."""
    if _takes_onednn(x) and weight_OI.dtype is torch.float32:
        return _OneDnnLinear.apply(x, weight_OI, bias_O)
    return F.linear(x, weight_OI, bias_O)


def kernels(*, device: str) -> Kernels:
    """The library behind a device's float32 maps, for a run's record: numbers from two differ in their last bits."""
    return "onednn" if device == "cpu" and ONEDNN_IS_FASTER else "native"


def _onednn_is_faster() -> bool:
    """Whether this torch has oneDNN's linear product beside MKL, on a processor that MKL is slow on."""
    present = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return present and torch.backends.mkl.is_available() and "AuthenticAMD" in _processor()


def _processor() -> str:
    """A text that holds the processor's vendor id."""
    return CPUINFO.read_text() if CPUINFO.exists() else platform.processor()


ONEDNN_IS_FASTER = _onednn_is_faster()


def _takes_onednn(x: Tensor) -> bool:
    return (
        ONEDNN_IS_FASTER
        and x.device.type == "cpu"
        and x.dtype is torch.float32
        and x.ndim > 1
        and x.numel() > 0
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


def _product(a_NI: Tensor, b_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """A B^T + b by oneDNN, for any strides."""
    return torch.ops.mkldnn._linear_pointwise(a_NI, b_OI, bias_O, "none", [], "")


class _OneDnnLinear(torch.autograd.Function):
    """A linear map whose three products are oneDNN's."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        """The map."""
        ctx.save_for_backward(x, weight_OI)
        return _product(x, weight_OI, bias_O)

    @staticmethod
    @once_differentiable
    def backward(  # type: ignore[override]
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """The gradients of inputs, weight and bias, each where it is asked for."""
        x, weight_OI = ctx.saved_tensors
        for_x, for_weight, for_bias = ctx.needs_input_grad
        gradient_NO = gradient.flatten(0, -2)
        return (
            _product(gradient, weight_OI.t()) if for_x else None,
            _weight_gradient_OI(gradient_NO, x.flatten(0, -2)) if for_weight else None,
            gradient_NO.sum(0) if for_bias else None,
        )


def _weight_gradient_OI(gradient_NO: Tensor, x_NI: Tensor) -> Tensor:
    # The wider one as the second factor: oneDNN then copies the narrower one into order (up to 1.7 times as fast).
    if gradient_NO.shape[1] > x_NI.shape[1]:
        return _product(x_NI.t(), gradient_NO.t()).t()
    return _product(gradient_NO.t(), x_NI.t())
