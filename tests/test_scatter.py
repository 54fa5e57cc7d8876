"""The scattering transform: kymatio's numbers, and what the mathematics promises.

arrays/scattering_kymatio_0_3_0.npz was made with kymatio 0.3.0's numpy Scattering2D(J=2, shape), scipy 1.16.3, in
float64 and stored as float32: `grey` holds MNIST's first training image and uniform noise (28 x 28), `rgb` uniform
noise (32 x 32 x 3); inputs are pixels / 255.
"""

from pathlib import Path

import numpy as np
import pytest
import small_sources as sources
import torch
from feature_worlds import mnist

from dpexp import features
from dpexp.config import ConfigError, ExtractorConfig
from dpexp.data import DataError, Split
from dpexp.features import extractors, scatter
from dpexp.features.extraction import encode

STORED = Path(__file__).resolve().parent / "arrays" / "scattering_kymatio_0_3_0.npz"


@pytest.fixture(scope="module")
def kymatio() -> dict[str, np.ndarray]:
    """The stored arrays."""
    with np.load(STORED) as file:
        return dict(file)


def extract(samples: np.ndarray, batch_size: int = 16, **settings) -> np.ndarray:
    """Features of images by the registered extractor."""
    config = ExtractorConfig(name="scatter", **settings)
    extractors.check(config)
    encoder = extractors.encoder(config, "cpu", samples)
    return encode(encoder, Split(samples=samples, labels=np.zeros(len(samples), np.int64)), batch_size).x


@pytest.mark.parametrize(("images", "shape"), [("grey", (2, 81, 7, 7)), ("rgb", (1, 243, 8, 8))])
def test_features_are_kymatios_in_its_order_of_channels(kymatio, images, shape):
    found = extract(kymatio[images])
    assert kymatio[f"{images}_scattering"].shape == shape
    np.testing.assert_allclose(found.reshape(shape), kymatio[f"{images}_scattering"], rtol=0, atol=2e-6)


def test_every_stored_channel_differs_from_every_other(kymatio):
    flat = kymatio["grey_scattering"].reshape(2, 81, 49).transpose(1, 0, 2).reshape(81, -1)
    assert np.abs(flat[:, None] - flat[None] + np.eye(81)[:, :, None]).max(2).min() > 1e-4


def test_a_constant_image_has_its_value_in_the_average_and_nothing_elsewhere():
    found = scatter.scattering(torch.full((1, 28, 28), 0.7, dtype=torch.float64))[0]
    torch.testing.assert_close(found[0], torch.full((7, 7), 0.7 * scatter.MASS, dtype=torch.float64))
    assert found[1:].abs().max() < 1e-9


def test_coefficients_scale_with_the_image():
    x = torch.rand(3, 20, 24, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(scatter.scattering(3 * x), 3 * scatter.scattering(x))
    assert scatter.scattering(x).shape == (3, 81, 5, 6)


def test_wavelet_channels_do_not_see_a_change_of_brightness_or_of_sign():
    x = torch.rand(2, 28, 28, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(scatter.scattering(x + 1)[:, 1:], scatter.scattering(x)[:, 1:])
    torch.testing.assert_close(scatter.scattering(-x)[:, 1:], scatter.scattering(x)[:, 1:])


def test_transposing_an_image_exchanges_its_angles():
    # Transposition maps the angle a to 90 degrees - a: 3 - k eighths of a half turn to 1 + k, the channel 2 - k.
    x = torch.rand(2, 28, 28, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    order = torch.tensor([(2 - k) % 8 for k in range(8)])
    once, turned = scatter.scattering(x), scatter.scattering(x.mT.contiguous()).mT
    for start in (1, 9):
        torch.testing.assert_close(turned[:, start : start + 8], once[:, start + order])


def test_what_is_computed_is_the_cascade_of_convolutions_and_moduli():
    # A slow reference for one path: full resolution all the way, every fourth pixel at the end.
    x = torch.rand(1, 28, 28, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    padded = torch.nn.functional.pad(x[None], (4, 4, 4, 4), mode="reflect")[0, 0]
    given = scatter.filters(28, 28, torch.float64, torch.device("cpu"))

    def convolve(image, spectrum):
        return torch.fft.ifft2(torch.fft.fft2(image) * spectrum)

    window = scatter._periodic(scatter._gaussian((36, 36), 1.6, 0.0, 1.0), (36, 36))
    average = torch.from_numpy(np.fft.fft2(window).real)
    first = convolve(padded, given.fine[2]).abs()
    smooth = convolve(first, average).real[::4, ::4][1:-1, 1:-1]
    torch.testing.assert_close(scatter.scattering(x)[0, 1 + 2], smooth)
    second = convolve(first, given.coarse[5]).abs()
    smooth = convolve(second, average).real[::4, ::4][1:-1, 1:-1]  # equal but for what halving the grid aliases
    torch.testing.assert_close(scatter.scattering(x)[0, 17 + 2 * 8 + 5], smooth, rtol=0.02, atol=1e-4)


def test_features_do_not_depend_on_the_batch():
    images = sources.grey(9)
    np.testing.assert_allclose(extract(images, batch_size=2), extract(images, batch_size=9), atol=1e-6)


def test_mean_and_std_are_applied_to_pixels_over_255(kymatio):
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    pixels = torch.from_numpy(kymatio["rgb"]).double() / 255
    normalised = ((pixels - torch.tensor(mean)) / torch.tensor(std))[0].permute(2, 0, 1)
    wanted = scatter.scattering(normalised).reshape(1, -1)
    np.testing.assert_allclose(extract(kymatio["rgb"], mean=mean, std=std), wanted.numpy(), atol=1e-5)


def test_settings_that_cannot_be_used_are_named(kymatio):
    with pytest.raises(ConfigError, match=r"extractor.std must be > 0, got 0"):
        extract(kymatio["grey"], std=0)
    with pytest.raises(ConfigError, match=r"extractor.weights must stay None for extractor=scatter"):
        extract(kymatio["grey"], weights="w.pth")
    with pytest.raises(DataError, match=r"extractor.mean must be one number or null for grey images, got \[0.5"):
        extract(kymatio["grey"], mean=[0.5, 0.5, 0.5])
    with pytest.raises(DataError, match=r"at least 8 x 8 pixels, got 28 x 7; set extractor.resize"):
        extract(kymatio["grey"][:, :, :7])


def test_the_cache_keeps_scattering_of_mnist(tmp_path):
    sources.write_mnist(tmp_path)
    found = features.load(mnist(tmp_path, "extractor=scatter"))
    assert found.train.x.shape == (20, 3969)
    np.testing.assert_allclose(found.train.x.numpy(), extract(sources.grey(20, 1)), atol=1e-6)
    assert features.load(mnist(tmp_path, "extractor=scatter")).digest == found.digest
