"""Extractor of images: the two-dimensional scattering transform of order 2 (Bruna and Mallat 2013).

A cascade of wavelet convolutions and moduli, averaged by a Gaussian: translation-stable features without training.
    S0 = x * phi        S1 = |x * psi_1| * phi        S2 = ||x * psi_1| * psi_2| * phi, psi_2 coarser than psi_1
The conventions (filters, padding, order of channels) are those of kymatio 0.3.0's Scattering2D(J=2), whose arrays the
tests hold. With J = 2 the coarse wavelets apply in the same way to x and to |x * psi_fine|, and what follows the last
modulus (average, keep every fourth pixel, cut the border) is one small matrix.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpexp.config import ConfigError, ExtractorConfig
from dpexp.data import DataError, Split
from dpexp.features.encoders import Batch, Encoder, channel_values
from dpexp.features.vision import GEOMETRY, check_geometry, pixels

SCALES = 2  # J: the average is over 2^J pixels
ANGLES = 8  # L
STRIDE = 2**SCALES
CHANNELS = 1 + SCALES * ANGLES + ANGLES * ANGLES  # per colour: S0, S1 of both scales, S2 of fine then coarse = 81
SMALLEST = 8  # pixels of the shorter side
BANDWIDTH = 0.8  # standard deviation of the finest Gaussian window, in pixels
FREQUENCY = 3 * math.pi / 4  # of the finest wavelet, in radians a pixel
SLANT = 4 / ANGLES  # the windows of wavelets are 1 / SLANT times wider across the wave than along it
MASS = math.pi / 3.1415  # of a window; kymatio takes pi as 3.1415, which is 3e-5 too much in every coefficient
KEYS = (*GEOMETRY, "mean", "std")


@dataclass(frozen=True, kw_only=True)
class Filters:
    """What an image size needs.

    padding: left, right, top, bottom pixels of reflection. fine: [angles, H, W], coarse: [angles, H, W], spectra of
    the wavelets of the padded image [H, W], real because a wavelet is Hermitian. average_full: [H * W, out],
    average_half: [H * W / 4, out]: average, every fourth (second) pixel, without the border.
    """

    padding: tuple[int, int, int, int]
    fine: Tensor
    coarse: Tensor
    average_full: Tensor
    average_half: Tensor


def _padded(side: int) -> int:
    """The side of a padded image: a multiple of 2^J with at least 2^J / 2 more pixels at each end."""
    return (side + STRIDE) // STRIDE * STRIDE + STRIDE


def _grid(size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Row and column offsets [5H, 1], [1, 5W] of a filter centred on the origin: five periods each way."""
    rows, columns = (np.arange(-2 * n, 3 * n, dtype=np.float64) for n in size)
    return rows[:, None], columns[None, :]


def _periodic(values: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Sum of the five by five periods of a filter: [5H, 5W] -> [H, W]."""
    height, width = size
    return values.reshape(5, height, 5, width).sum((0, 2))


def _gaussian(size: tuple[int, int], deviation: float, angle: float, slant: float) -> np.ndarray:
    """A periodic Gaussian window [5H, 5W], of mass MASS, `deviation` along `angle` and deviation / slant across."""
    rows, columns = _grid(size)
    along = rows * math.cos(angle) + columns * math.sin(angle)
    across = columns * math.cos(angle) - rows * math.sin(angle)
    window = np.exp(-(along**2 + (slant * across) ** 2) / (2 * deviation**2))
    return window * MASS * slant / (2 * math.pi * deviation**2)


def _morlet_spectrum(size: tuple[int, int], scale: int, angle: float) -> np.ndarray:
    """Spectrum [H, W] of a Morlet wavelet: a wave under a Gaussian window, less the window, so that its sum is 0."""
    window = _gaussian(size, BANDWIDTH * 2**scale, angle, SLANT)
    rows, columns = _grid(size)
    phase = FREQUENCY / 2**scale * (rows * math.cos(angle) + columns * math.sin(angle))
    wave, window = _periodic(window * np.exp(1j * phase), size), _periodic(window, size)
    return np.fft.fft2(wave - window * (wave.sum() / window.sum())).real


def _wavelets(size: tuple[int, int], scale: int) -> Tensor:
    """Spectra [angles, H, W] of one scale, from 3/8 of a half turn downwards in steps of an eighth."""
    angles = [(ANGLES // 2 - 1 - k) * math.pi / ANGLES for k in range(ANGLES)]
    return torch.from_numpy(np.stack([_morlet_spectrum(size, scale, angle) for angle in angles]))


def _low_frequencies(spectrum: np.ndarray, keep: tuple[int, int]) -> np.ndarray:
    """The `keep` lowest frequencies of a spectrum, as the spectrum of a coarser grid."""
    for axis, n in enumerate(keep):
        length = spectrum.shape[axis]
        kept = [*range((n + 1) // 2), *range(length - n // 2, length)]
        spectrum = np.take(spectrum, kept, axis=axis)
    return spectrum


def _average(size: tuple[int, int], spectrum: np.ndarray, stride: int) -> Tensor:
    """Matrix [H * W, out]: convolution with a real even filter, every `stride`-th pixel, no first and last of them."""
    height, width = size
    impulses = np.eye(height * width).reshape(-1, height, width)
    smooth = np.fft.ifft2(np.fft.fft2(impulses) * spectrum).real
    kept = smooth[:, ::stride, ::stride][:, 1:-1, 1:-1]
    return torch.from_numpy(np.ascontiguousarray(kept.reshape(height * width, -1)))


@lru_cache(maxsize=8)
def filters(height: int, width: int, dtype: torch.dtype, device: torch.device) -> Filters:
    """The filters of images [height, width].

    Raises: DataError for images too small to be padded by reflection.
    """
    if min(height, width) < SMALLEST:
        raise DataError(
            f"extractor=scatter needs images of at least {SMALLEST} x {SMALLEST} pixels, got {height} x {width}; set "
            "extractor.resize"
        )
    size = _padded(height), _padded(width)
    half = size[0] // 2, size[1] // 2
    more = [(padded - side, side) for padded, side in zip(size, (height, width), strict=True)]
    top, left = (extra // 2 for extra, _ in more)
    window = _periodic(_gaussian(size, BANDWIDTH * 2 ** (SCALES - 1), 0.0, 1.0), size)
    smooth = np.fft.fft2(window).real
    tensors = (
        _wavelets(size, 0),
        _wavelets(size, 1),
        _average(size, smooth, STRIDE),
        _average(half, _low_frequencies(smooth, half), STRIDE // 2),
    )
    fine, coarse, average_full, average_half = (t.to(device=device, dtype=dtype) for t in tensors)
    return Filters(
        padding=(left, more[1][0] - left, top, more[0][0] - top),
        fine=fine,
        coarse=coarse,
        average_full=average_full,
        average_half=average_half,
    )


def _halved(spectrum: Tensor) -> Tensor:
    """The spectrum of every second pixel each way: the mean of the four quarters that alias, [..., H/2, W/2]."""
    top, bottom = spectrum.chunk(2, dim=-2)
    left, right = (top + bottom).chunk(2, dim=-1)
    return (left + right) / 4


def scattering(images: Tensor) -> Tensor:
    """Scattering coefficients [n, 81, rows, columns] of images [n, height, width] in float32 or float64.

    rows = padded height / 4 - 2, for example 7 for 28 pixels and 8 for 32. Channels: S0; S1 of the fine wavelets by
    angle; S1 of the coarse ones; S2 by fine, then coarse angle. Bruna and Mallat 2013, Section 3.
    Raises: DataError for images below 8 x 8.
    """
    n, height, width = images.shape
    given = filters(height, width, images.dtype, images.device)
    padded = torch.nn.functional.pad(images[:, None], given.padding, mode="reflect")
    spectrum = torch.fft.fft2(padded)
    fine = torch.fft.ifft2(spectrum * given.fine).abs()
    full = torch.cat([padded, fine], dim=1)
    spectra = torch.cat([spectrum, torch.fft.fft2(fine)], dim=1)
    coarse = torch.fft.ifft2(_halved(spectra[:, :, None] * given.coarse)).abs()
    low = full.flatten(2) @ given.average_full
    band = coarse.flatten(1, 2).flatten(2) @ given.average_half
    rows = padded.shape[-2] // STRIDE - 2
    return torch.cat([low, band], dim=1).view(n, CHANNELS, rows, -1)


def _per_colour(key: str, value: Any, colours: int, default: float) -> Tensor:
    """The numbers of one key as [colours, 1, 1]: one number for grey images, one or three for coloured ones."""
    if colours == 1 and isinstance(value, list | tuple):
        raise DataError(f"{key} must be one number or null for grey images, got {value!r}")
    given = channel_values(key, default if value is None else value)
    return torch.tensor(given[:colours]).view(-1, 1, 1)


def check_scatter(config: ExtractorConfig) -> None:
    """Check the geometry and the optional normalisation of pixels."""
    check_geometry(config)
    for key in ("mean", "std"):
        value = getattr(config, key)
        if value is not None and min(channel_values(f"extractor.{key}", value)) <= 0 and key == "std":
            raise ConfigError(f"extractor.std must be > 0, got {value!r}")


def build_scatter(config: ExtractorConfig, device: str) -> Encoder:
    """Scattering of pixels / 255, less extractor.mean and over extractor.std where given, flattened.

    Layout [channel, row, column]: 81 channels of grey images, three times 81 (red, green, blue) of coloured ones;
    81 * 7 * 7 = 3,969 floats of a grey 28 x 28, 243 * 8 * 8 = 15,552 of a coloured 32 x 32.
    """

    def prepare(split: Split) -> Batch:
        samples = split.samples
        as_stored = isinstance(samples, np.ndarray) and config.resize is None and config.crop is None
        values = np.asarray(samples) if as_stored else pixels(split, config)
        values = values[:, None] if values.ndim == 3 else values.transpose(0, 3, 1, 2)
        return Batch(inputs={"image": torch.from_numpy(np.ascontiguousarray(values))})

    def forward(inputs: dict[str, Tensor]) -> Tensor:
        image = inputs["image"]
        n, colours = image.shape[:2]
        mean, std = (
            _per_colour(f"extractor.{key}", getattr(config, key), colours, default).to(image.device)
            for key, default in (("mean", 0.0), ("std", 1.0))
        )
        normalised = (image.float() / 255 - mean) / std
        return scattering(normalised.flatten(0, 1)).reshape(n, -1)

    return Encoder(prepare=prepare, forward=forward, device=device)
