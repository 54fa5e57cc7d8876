"""Normalisation of scattering features before training: noisy channel statistics, or groups of channels.

Features are [n, d] float32 with d = channels * pixels in layout [channel, pixel], as the extractor `scatter` gives
them. Functions that end in an underscore change their argument in place, some rows at a time: memory stays that of the
features. What they change is no longer what the cache holds.

Noisy statistics: Tramer and Boneh 2021, Section 2.3 and Appendix; DPSUR (Fu et al. 2024) and paper S take them over.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import group_norm

from dpexp.config import ConfigError

ROWS = 1024  # normalised together
GROUPS = 27
STABILITY = 1e-5  # added to every variance


def _blocks(x: Tensor, channels: int) -> Iterator[Tensor]:
    """Views [rows, channels, pixels] of x [n, d], in order.

    Raises: ConfigError if d is no multiple of the channels.
    """
    if channels < 1 or x.shape[1] % channels:
        raise ConfigError(f"{x.shape[1]} features a row cannot be {channels} channels of equally many pixels")
    for start in range(0, len(x), ROWS):
        yield x[start : start + ROWS].view(-1, channels, x.shape[1] // channels)


def channel_means(x: Tensor, channels: int, power: int) -> Tensor:
    """Mean over pixels of x ** power for each row and channel: [n, d] -> float64 [n, channels]."""
    means = [block.double().pow(power).mean(2) for block in _blocks(x, channels)]
    return torch.cat(means) if means else x.new_empty(0, channels, dtype=torch.float64)


def clipped_sum(vectors: Tensor, threshold: float) -> Tensor:
    """Sum of vectors [n, k], each scaled down to norm `threshold` if it is longer: [k].

    Guarantee: adding or removing one vector moves the sum by at most `threshold` in L2 norm.
    """
    norms = torch.linalg.vector_norm(vectors, dim=1)
    return (threshold / norms.clamp(min=threshold)) @ vectors


def _noisy_mean(vectors: Tensor, noise_multiplier: float, generator: torch.Generator) -> Tensor:
    """Mean [k] of vectors [n, k] clipped at the median of their norms, with Gaussian noise."""
    threshold = float(torch.linalg.vector_norm(vectors, dim=1).quantile(0.5))
    if not 0 < threshold < math.inf:
        raise ConfigError(
            f"noisy channel statistics need features whose median norm is finite and > 0, got {threshold:g}; use "
            "another normalisation"
        )
    noise = torch.randn(vectors.shape[1], generator=generator, dtype=vectors.dtype, device=generator.device)
    std = noise_multiplier * threshold
    return (clipped_sum(vectors, threshold) + std * noise.to(vectors.device)) / len(vectors)


def noisy_channel_statistics(
    x: Tensor, channels: int, noise_multiplier: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Noisy mean and variance [channels] (float64) of each channel over rows and pixels, from x [n, d].

    Two sums are released, of each row's channel means and of its channel means of squares, each clipped at the median
    norm and with Gaussian noise of noise_multiplier * median. A variance that comes out below 0 is 0: `standardise_`
    switches that channel off.
    Guarantee: two Gaussian mechanisms of this noise multiplier on the whole data set (sample rate 1), one row added or
    removed, for n known. The two medians are computed WITHOUT privacy and no account charges them.
    Raises: ConfigError for a noise multiplier that is not finite and >= 0, for no rows, for features that are mostly 0.
    """
    if not (math.isfinite(noise_multiplier) and noise_multiplier >= 0):
        raise ConfigError(f"the noise multiplier of channel statistics must be finite and >= 0, got {noise_multiplier}")
    if not len(x):
        raise ConfigError("channel statistics need at least one row, got none")
    mean = _noisy_mean(channel_means(x, channels, 1), noise_multiplier, generator)
    squares = _noisy_mean(channel_means(x, channels, 2), noise_multiplier, generator)
    return mean, (squares - mean.square()).clamp(min=0)


def standardise_(x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """x [n, d] -> (x - mean) / sqrt(variance + 1e-5) for each channel, 0 where the variance is 0; in place.

    mean, variance: [channels].
    """
    scale = torch.where(variance > 0, (variance + STABILITY).rsqrt(), 0.0).to(x)[:, None]
    shift = -mean.to(x)[:, None] * scale
    for block in _blocks(x, len(mean)):
        block.mul_(scale).add_(shift)
    return x


def group_norm_(x: Tensor, channels: int, groups: int = GROUPS) -> Tensor:
    """Each row's groups of neighbouring channels brought to mean 0 and variance 1 (Wu and He 2018), without weights.

    A row is normalised by itself alone: no privacy cost. x: [n, d], changed in place.
    Raises: ConfigError if the channels cannot be divided into the groups.
    """
    if groups < 1 or channels % groups:
        raise ConfigError(f"{channels} channels cannot be divided into {groups} equal groups")
    for block in _blocks(x, channels):
        block.copy_(group_norm(block, groups, eps=STABILITY))
    return x


def damp_wavelet_channels_(x: Tensor, channels: int, factor: float = 4.0) -> Tensor:
    """Every channel but the first, the plain average, divided by `factor`; in place.

    What the code published with paper S does to Fashion-MNIST's scattering before group normalisation.
    """
    for block in _blocks(x, channels):
        block[:, 1:].div_(factor)
    return x
