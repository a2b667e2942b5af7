"""Properties of norms, and of DeepNorm's residual connection.

Legend: B batch, T tokens, D width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from knockout.declare.architecture import Architecture
from knockout.model.network import Network
from knockout.model.properties.finding import Finding, block_of, difference, draw, network_of, same

CENTRE, SPREAD = 3.0, 5.0
"""Mean and standard deviation of the inputs: neither 0 nor 1, so that both are seen to change."""
NEAR = 1e-4
"""How near 0 and 1 mean and variance must be; the norm's eps moves the variance by about 1e-6."""


def layer_norm_standardises(architecture: Architecture) -> Finding:
    """Whether the norm's output, before gain and bias, has mean 0 and variance 1 at every token (Ba et al. 2016)."""
    return _standardises(_input_BTD(architecture), network=network_of(architecture), eps=_eps(architecture))


def layer_norm_standardises_the_table(architecture: Architecture) -> Finding:
    """Whether it does so for the rows of the token table as they are drawn, to which eps is not small."""
    network = network_of(architecture)
    return _standardises(network.embedding.weight, network=network, eps=_eps(architecture))


def _standardises(x_D: Tensor, *, network: Network, eps: float) -> Finding:
    with torch.no_grad():
        y_BTD = block_of(network).attention_norm(x_D)
    mean, variance = y_BTD.mean(-1).abs().max().item(), (y_BTD.var(-1, unbiased=False) - 1).abs().max().item()
    off = max(mean, variance)
    average = y_BTD.var(-1, unbiased=False).mean().item()
    detail = (
        f"no token's mean is further from 0 than {mean:.1e}, no variance further from 1 than {variance:.1e}: "
        f"inputs deviate by {x_D.std().item():.3g}, and with an eps of {eps:g} the variance is {average:.4g} on average"
    )
    return Finding(off <= NEAR, off, detail)


def rms_norm_divides_by_the_root_mean_square(architecture: Architecture) -> Finding:
    """Whether the built norm is x / sqrt(mean(x^2) + eps) * gain (Zhang & Sennrich 2019, equation 4)."""
    gain_D, x_BTD = draw(architecture.width, name="gain"), _input_BTD(architecture)
    norm = block_of(network_of(architecture)).attention_norm
    with torch.no_grad():
        norm.weight.copy_(gain_D)  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
        found_BTD = norm(x_BTD)
    return same(
        found_BTD,
        _over_rms(x_BTD, eps=_eps(architecture)) * gain_D,
        equal="the built norm is x / RMS(x) · γ",
        unequal="the built norm is not x / RMS(x) · γ",
    )


def rms_norm_is_layer_norm_without_centring(architecture: Architecture) -> Finding:
    """Whether layer norm is RMSNorm of the centred input, so that centring is all that tells them apart."""
    x_BTD, eps = _input_BTD(architecture), _eps(architecture)
    layered_BTD = F.layer_norm(x_BTD, (architecture.width,), eps=eps)
    apart = difference(_over_rms(x_BTD, eps=eps), layered_BTD)
    return same(
        _over_rms(x_BTD - x_BTD.mean(-1, keepdim=True), eps=eps),
        layered_BTD,
        equal=f"RMSNorm of the centred input is layer norm; without centring they differ by {apart:.2f} of their size",
        unequal="RMSNorm of the centred input is not layer norm",
    )


def rms_norm_divides_by_the_deviation(architecture: Architecture) -> Finding:
    """Whether RMSNorm divides by the standard deviation."""
    x_BTD, eps = _input_BTD(architecture), _eps(architecture)
    by_deviation_BTD = x_BTD / (x_BTD.var(-1, unbiased=False, keepdim=True) + eps).sqrt()
    return same(
        _over_rms(x_BTD, eps=eps),
        by_deviation_BTD,
        equal="root mean square and standard deviation are the same here",
        unequal="RMS(x)² is the variance plus the mean's square, so it is larger than the deviation unless the mean is 0",
    )


def deepnorm_scales_the_branch(architecture: Architecture) -> Finding:
    """Whether x + α F(x) is DeepNorm, LayerNorm(α x + F(x)) (Wang et al. 2022, section 3 and equation 4)."""
    x, branch, alpha = _deep(architecture)
    return _as_deepnorm(x + alpha * branch, architecture, words=f"x + α·F(x), α = {alpha:.3f}")


def deepnorm_scales_the_branch_then_norms(architecture: Architecture) -> Finding:
    """Whether LayerNorm(x + α F(x)) is DeepNorm."""
    x, branch, alpha = _deep(architecture)
    return _as_deepnorm(_normed(x + alpha * branch), architecture, words=f"LayerNorm(x + α·F(x)), α = {alpha:.3f}")


def deepnorm_scales_the_stream_then_norms(architecture: Architecture) -> Finding:
    """Whether LayerNorm(x + F(x) / α) is DeepNorm."""
    x, branch, alpha = _deep(architecture)
    return _as_deepnorm(_normed(x + branch / alpha), architecture, words=f"LayerNorm(x + F(x)/α), α = {alpha:.3f}")


def _as_deepnorm(found: Tensor, architecture: Architecture, *, words: str) -> Finding:
    x, branch, alpha = _deep(architecture)
    return same(
        found,
        _normed(alpha * x + branch),
        equal=f"{words}, is the paper's LayerNorm(α·x + F(x)): the norm takes the common factor out",
        unequal=f"{words}, is not the paper's LayerNorm(α·x + F(x)): there α over 1 strengthens the stream, here the branch",
    )


def _deep(architecture: Architecture) -> tuple[Tensor, Tensor, float]:
    """A stream, a branch's output, and α = (2N)^(1/4) of a decoder with N layers (Wang et al. 2022, figure 2)."""
    shape = 2, architecture.context, architecture.width
    return draw(*shape, name="x"), draw(*shape, name="branch"), (2 * architecture.depth) ** 0.25


def _normed(x_BTD: Tensor) -> Tensor:
    """LayerNorm without eps, so that the identities are exact."""
    return F.layer_norm(x_BTD, x_BTD.shape[-1:], eps=0.0)


def _over_rms(x_BTD: Tensor, *, eps: float) -> Tensor:
    return x_BTD / (x_BTD.square().mean(-1, keepdim=True) + eps).sqrt()


def _input_BTD(architecture: Architecture) -> Tensor:
    return CENTRE + draw(2, architecture.context, architecture.width, name="x", scale=SPREAD)


def _eps(architecture: Architecture) -> float:
    return getattr(architecture.norm, "eps", 0.0)
