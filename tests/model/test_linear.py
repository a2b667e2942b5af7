"""The product behind linear maps: oneDNN's where MKL is slow, and always the numbers of torch's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from knockout.model import kernels
from knockout.model.kernels import linear
from knockout.model.linear import Linear

onednn = pytest.mark.skipif(not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="this torch has no oneDNN product")


@pytest.fixture
def on_amd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "ONEDNN_IS_FASTER", True)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def everything(product: Callable[..., Tensor], *inputs: Tensor | None) -> list[Tensor]:
    """The outputs and every gradient of their squares' sum."""
    leaves = [tensor for tensor in inputs if tensor is not None]
    output = product(*inputs)
    return [output, *torch.autograd.grad(output.square().sum(), leaves)]


@onednn
@pytest.mark.parametrize("shape", [(8, 128, 64), (3, 5, 7), (2, 3, 4, 8), (1, 16), (9, 1)])
@pytest.mark.parametrize("outputs", [256, 12, 1])
@pytest.mark.parametrize("bias", [True, False])
def test_outputs_and_gradients_are_those_of_float64(on_amd: None, shape: tuple[int, ...], outputs: int, bias: bool):
    inputs = [drawn(*shape), drawn(outputs, shape[-1], seed=1), drawn(outputs, seed=2) if bias else None]
    found = everything(linear, *inputs)
    expected = everything(F.linear, *(None if tensor is None else tensor.double() for tensor in inputs))
    assert "OneDnn" in type(linear(*inputs).grad_fn).__name__  # type: ignore[arg-type]
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert (one - other).norm() <= 1e-6 * other.norm()


@onednn
def test_inputs_of_any_strides_and_expanded_gradients_are_taken(on_amd: None):
    x_NI, weight_OI = drawn(8, 6).t(), drawn(5, 8, seed=1)
    linear(x_NI, weight_OI).sum().backward()
    assert torch.allclose(weight_OI.grad, x_NI.sum(0).expand(5, 8), atol=1e-5)  # type: ignore[arg-type]


@onednn
def test_the_same_product_is_the_same_bit_for_bit(on_amd: None):
    inputs = drawn(16, 128, 64), drawn(192, 64, seed=1), drawn(192, seed=2)
    first = everything(linear, *inputs)
    for _ in range(5):
        assert all(map(torch.equal, everything(linear, *inputs), first))


@onednn
def test_only_the_gradients_that_are_asked_for_are_computed(on_amd: None):
    x_NI, weight_OI = drawn(4, 8), drawn(5, 8, seed=1).detach()
    linear(x_NI, weight_OI).sum().backward()
    assert torch.allclose(x_NI.grad, weight_OI.sum(0).expand(4, 8), atol=1e-5)  # type: ignore[arg-type]


def test_other_dtypes_autocast_single_rows_nothing_and_meta_tensors_are_torchs_own(on_amd: None):
    for x in (drawn(4, 8).double(), drawn(8), torch.empty(0, 8), drawn(4, 8).to("meta")):
        weight_OI = torch.ones(3, 8, dtype=x.dtype, device=x.device, requires_grad=True)
        assert "OneDnn" not in type(linear(x, weight_OI).grad_fn).__name__
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert linear(drawn(4, 8), drawn(3, 8)).dtype is torch.bfloat16


def test_a_layer_is_torchs_own_on_processors_where_mkl_is_fast(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kernels, "ONEDNN_IS_FASTER", False)
    layer, x_NI = Linear(8, 3), drawn(4, 8)
    torch.nn.init.ones_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    assert torch.equal(layer(x_NI), F.linear(x_NI, layer.weight, layer.bias))
    assert kernels.kernels(device="cpu") == "native"


def test_a_gpus_maps_are_never_onednns(on_amd: None):
    assert kernels.kernels(device="cuda") == "native"
    assert kernels.kernels(device="cpu") == "onednn"


@pytest.mark.parametrize(("vendor", "faster"), [("AuthenticAMD", True), ("GenuineIntel", False)])
@onednn
def test_the_processors_vendor_decides(monkeypatch: pytest.MonkeyPatch, vendor: str, faster: bool):
    monkeypatch.setattr(kernels, "_processor", lambda: f"processor : 0\nvendor_id : {vendor}\n")
    assert kernels._onednn_is_faster() == (faster and torch.backends.mkl.is_available())


def test_a_torch_without_the_product_does_without(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kernels, "_processor", lambda: "vendor_id : AuthenticAMD")
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert not kernels._onednn_is_faster()
