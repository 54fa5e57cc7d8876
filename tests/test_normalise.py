"""Noisy channel statistics and group normalisation: sensitivities, closed forms, PyTorch's own."""

import math

import pytest
import torch
from torch.nn import functional

from dpexp.config import ConfigError
from dpexp.features import normalise


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def gaussian(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=draws(seed))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Several blocks even in small worlds."""
    monkeypatch.setattr(normalise, "ROWS", 3)


@pytest.mark.parametrize("scale", [0.0, 0.01, 1.0, 1e6])
def test_one_row_moves_the_sum_by_at_most_the_threshold(scale):
    rows = gaussian(40, 5).double()
    added = torch.cat([rows, scale * gaussian(1, 5, seed=1).double()])
    moved = normalise.clipped_sum(added, 1.5) - normalise.clipped_sum(rows, 1.5)
    assert torch.linalg.vector_norm(moved) <= 1.5 * (1 + 1e-9)


def test_short_rows_are_summed_as_they_are_and_long_ones_keep_their_direction():
    rows = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    torch.testing.assert_close(normalise.clipped_sum(rows, 1.0), torch.tensor([0.6 + 0.3, 0.8 + 0.4]))


def test_channel_means_are_over_pixels():
    x = torch.tensor([[1.0, 3.0, 10.0, 20.0], [0.0, -2.0, 1.0, 1.0]])
    assert normalise.channel_means(x, 2, 1).tolist() == [[2.0, 15.0], [-1.0, 1.0]]
    assert normalise.channel_means(x, 2, 2).tolist() == [[5.0, 250.0], [2.0, 1.0]]


def test_statistics_without_noise_on_a_tiny_array_are_the_closed_form():
    # One pixel a channel; rows (3, 4), (6, 8), (0, 5): norms 5, 10, 5, median 5, so that (6, 8) becomes (3, 4).
    # Squares (9, 16), (36, 64), (0, 25): norms 18.36, 73.43, 25, median 25: (36, 64) * 25 / 73.43.
    x = torch.tensor([[3.0, 4.0], [6.0, 8.0], [0.0, 5.0]])
    mean, variance = normalise.noisy_channel_statistics(x, 2, 0.0, draws())
    assert mean.tolist() == pytest.approx([2.0, 13 / 3])
    shrink = 25 / math.hypot(36, 64)
    squares = [(9 + 36 * shrink) / 3, (16 + 64 * shrink + 25) / 3]
    assert variance.tolist() == pytest.approx([squares[0] - 4, max(squares[1] - (13 / 3) ** 2, 0)])


def test_the_noise_has_the_multiplier_times_the_median_over_n():
    x = torch.ones(4, 2000)  # 2,000 channels of one pixel: every norm, and so the median, is sqrt(2000)
    mean, variance = normalise.noisy_channel_statistics(x, 2000, 8.0, draws())
    std = 8 * math.sqrt(2000) / 4
    assert float((mean - 1).std()) == pytest.approx(std, rel=0.05)
    second = torch.Generator().manual_seed(0)
    first_noise, second_noise = (torch.randn(2000, generator=second, dtype=torch.float64) for _ in range(2))
    torch.testing.assert_close(mean, 1 + std * first_noise)
    torch.testing.assert_close(variance, (1 + std * second_noise - mean.square()).clamp(min=0))
    assert (variance == 0).any()


def test_the_same_generator_gives_the_same_statistics_and_the_features_stay():
    x = gaussian(10, 12)
    before = x.clone()
    first = normalise.noisy_channel_statistics(x, 3, 8.0, draws(5))
    again = normalise.noisy_channel_statistics(x, 3, 8.0, draws(5))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert torch.equal(x, before)


def test_standardising_with_the_exact_statistics_gives_mean_0_and_variance_1_in_place():
    x = (gaussian(50, 4, 6) * torch.tensor([1.0, 2.0, 5.0, 9.0])[:, None] + 3).flatten(1)
    channels = x.view(50, 4, 6).double()
    mean, variance = channels.mean((0, 2)), channels.var((0, 2), correction=0)
    wanted = (channels - mean[:, None]) / (variance[:, None] + 1e-5).sqrt()
    found = normalise.standardise_(x, mean, variance)
    assert found is x
    torch.testing.assert_close(x.view(50, 4, 6), wanted.float(), rtol=1e-5, atol=1e-5)


def test_a_channel_of_zero_variance_becomes_zero():
    x = gaussian(7, 6)
    normalise.standardise_(x, torch.tensor([0.5, 0.5]), torch.tensor([0.0, 1.0]))
    assert torch.equal(x[:, :3], torch.zeros(7, 3))
    assert (x[:, 3:] != 0).all()


def test_group_norm_is_pytorchs_on_images_and_its_groups_have_mean_0_and_variance_1():
    x = gaussian(7, 81 * 49) * 3 + 1
    wanted = functional.group_norm(x.view(7, 81, 7, 7), 27)
    found = normalise.group_norm_(x, 81)
    assert found is x
    torch.testing.assert_close(x.view(7, 81, 7, 7), wanted)
    groups = x.view(7, 27, -1)
    torch.testing.assert_close(groups.mean(2), torch.zeros(7, 27), atol=1e-5, rtol=0)
    torch.testing.assert_close(groups.var(2, correction=0), torch.ones(7, 27), atol=1e-4, rtol=0)


def test_damping_divides_every_channel_but_the_first():
    x = torch.arange(24.0).view(4, 6)
    before = x.clone()
    normalise.damp_wavelet_channels_(x, 3)
    assert torch.equal(x[:, :2], before[:, :2])
    assert torch.equal(x[:, 2:], before[:, 2:] / 4)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda x: normalise.noisy_channel_statistics(x, 5, 8.0, draws()), r"12 features a row cannot be 5 channels"),
        (lambda x: normalise.noisy_channel_statistics(x, 3, math.nan, draws()), r"finite and >= 0, got nan"),
        (lambda x: normalise.noisy_channel_statistics(x, 3, -1.0, draws()), r"finite and >= 0, got -1"),
        (lambda x: normalise.noisy_channel_statistics(x[:0], 3, 8.0, draws()), r"at least one row, got none"),
        (lambda x: normalise.noisy_channel_statistics(x * 0, 3, 8.0, draws()), r"median norm is finite and > 0, got 0"),
        (lambda x: normalise.group_norm_(x, 3, groups=2), r"3 channels cannot be divided into 2 equal groups"),
    ],
)
def test_what_cannot_be_normalised_is_named(wrong, message):
    with pytest.raises(ConfigError, match=message):
        wrong(gaussian(4, 12))
