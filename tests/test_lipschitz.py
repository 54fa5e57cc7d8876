"""The private minimum keeps its epsilon exactly and lands where its docstring says."""

import itertools
import math

import numpy as np
import pytest
import torch

from dpexp.config import ConfigError
from dpexp.lipschitz import (
    constants,
    geometric_grid,
    percentile_clip_norms,
    percentile_of,
    private_minimum,
    private_minimum_probabilities,
    report_noisy_max_minimum,
)

GRID = np.array([0.5, 1.0, 2.0, 4.0])
WORLD = (0.0, 0.4, 0.5, 1.5, 3.0, 9.0)  # one value in each gap of the grid, one on a grid value, one zero


def _tensor(values: tuple[float, ...]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _sample() -> torch.Tensor:
    """20,000 constants shaped like the norms of image features: a bulk around 14 and a thin lower tail."""
    return torch.from_numpy(3 + np.random.default_rng(7).gamma(shape=9.0, scale=1.2, size=20_000))


@pytest.mark.parametrize("power", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("epsilon", [0.1, 0.3, 2.0])
def test_adding_or_removing_any_sample_changes_no_probability_by_more_than_exp_epsilon(
    epsilon: float, power: float
) -> None:
    worst = 0.0
    for size in range(4):
        for data in itertools.combinations_with_replacement(WORLD, size):
            before = private_minimum_probabilities(_tensor(data), epsilon, GRID, power)
            for added in WORLD:
                after = private_minimum_probabilities(_tensor((*data, added)), epsilon, GRID, power)
                worst = max(worst, float(np.abs(np.log(after / before)).max()))
    assert worst <= epsilon * (1 + 1e-12)
    assert worst > 0.2 * epsilon, "the worlds should come near the bound, or this test could not fail"


@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_replacing_any_sample_changes_no_probability_by_more_than_exp_epsilon_either(epsilon: float) -> None:
    shifts = []
    for rest in itertools.combinations_with_replacement(WORLD, 2):
        worlds = [private_minimum_probabilities(_tensor((*rest, one)), epsilon, GRID) for one in WORLD]
        shifts += [np.abs(np.log(a / b)).max() for a, b in itertools.combinations(worlds, 2)]
    assert 0.5 * epsilon < max(shifts) <= epsilon * (1 + 1e-12)


def test_draws_follow_the_stated_distribution() -> None:
    probabilities = private_minimum_probabilities(_tensor(WORLD), 0.3, GRID)
    generator = np.random.default_rng(0)
    draws = np.array([private_minimum(_tensor(WORLD), 0.3, GRID, generator) for _ in range(4000)])
    frequencies = (draws[:, None] == GRID).mean(0)
    np.testing.assert_allclose(frequencies, probabilities, atol=4 * math.sqrt(0.25 / 4000))


def test_the_distribution_is_that_of_report_noisy_max_with_gumbel_noise() -> None:
    epsilon, power = 0.3, 4.0
    below = (_tensor(WORLD)[None, :] < torch.from_numpy(GRID)[:, None]).sum(1).numpy()
    noise = np.random.default_rng(1).gumbel(scale=1 / epsilon, size=(200_000, len(GRID)))
    winners = (-below + power * np.log(GRID) / epsilon + noise).argmax(1)
    expected = private_minimum_probabilities(_tensor(WORLD), epsilon, GRID, power)
    np.testing.assert_allclose(np.bincount(winners, minlength=4) / 200_000, expected, atol=0.005)


def test_over_100_seeds_few_samples_lie_below_the_result_and_half_the_minimum_is_rarely_undercut() -> None:
    values, grid, epsilon, beta, power = _sample(), geometric_grid(0.1, 100, 200), 0.3, 0.05, 4.0
    smallest = float(values.min())
    target = grid[grid <= smallest].max()
    slack = math.log(((grid / target) ** power).sum() / beta) / epsilon
    found = [private_minimum(values, epsilon, grid, np.random.default_rng(s), power) for s in range(100)]
    below = np.array([int((values < f).sum()) for f in found])
    assert (below < slack).mean() >= 1 - beta
    assert np.mean(np.array(found) < target / 2) <= 2**-power + 3 * math.sqrt(2**-power / 100)
    assert np.mean(np.array(found) <= smallest) > 0.5
    assert max(percentile_of(values, f) for f in found) < 0.5


@pytest.mark.parametrize("power", [1.0, 4.0, 8.0])
def test_accuracy_statement_holds_for_the_exact_distribution(power: float) -> None:
    values, grid, epsilon = _sample(), geometric_grid(0.1, 100, 200), 0.3
    probabilities = private_minimum_probabilities(values, epsilon, grid, power)
    below = (values[None, :].numpy() < grid[:, None]).sum(1)
    target, ratio = int((below == 0).sum()) - 1, grid[1] / grid[0]
    for beta in (0.5, 0.05, 1e-3):
        slack = math.log(((grid / grid[target]) ** power).sum() / beta) / epsilon
        assert probabilities[below >= slack].sum() <= beta
    for j in range(target):
        assert probabilities[: target - j].sum() <= ratio ** (-power * (j + 1)) * (1 + 1e-9)


def test_the_papers_reading_returns_a_data_point_and_so_betrays_a_sample() -> None:
    values = _sample()
    added = torch.cat([values, _tensor((0.123,))])
    seeds = range(100)
    with_it = [report_noisy_max_minimum(added, 50.0, 1.0, np.random.default_rng(s)) for s in seeds]
    without = [report_noisy_max_minimum(values, 50.0, 1.0, np.random.default_rng(s)) for s in seeds]
    assert all(v in values for v in without)
    assert 0.123 in with_it
    assert 0.123 not in without


def test_the_papers_reading_at_its_budget_lands_far_above_the_minimum_and_the_sound_one_does_not() -> None:
    values, grid = _sample(), geometric_grid(0.1, 100, 200)
    generators = [np.random.default_rng(s) for s in range(100)]
    paper = [percentile_of(values, report_noisy_max_minimum(values, 0.3, 1.0, g)) for g in generators]
    sound = [percentile_of(values, private_minimum(values, 0.3, grid, g)) for g in generators]
    assert np.median(paper) > 5
    assert np.median(sound) < 0.1


def test_noiseless_limit_of_both_modes_is_the_minimum() -> None:
    values = _sample()
    generator = np.random.default_rng(0)
    assert report_noisy_max_minimum(values, 1e9, 1.0, generator) == float(values.min())
    found = private_minimum(values, 1e9, GRID, generator, power=60.0)
    assert found == GRID[float(values.min()) >= GRID].max()


def test_a_zero_constant_is_counted_and_not_betrayed_by_an_error() -> None:
    with_zero = private_minimum_probabilities(_tensor((0.0, 3.0)), 0.3, GRID)
    without = private_minimum_probabilities(_tensor((3.0,)), 0.3, GRID)
    np.testing.assert_allclose(with_zero, without, rtol=1e-12)  # it lies below every grid value: nothing moves


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_constants_that_are_no_norms_are_named(bad: float) -> None:
    generator = np.random.default_rng(0)
    with pytest.raises(ConfigError, match="1 of 2 are not"):
        private_minimum(_tensor((1.0, bad)), 0.3, GRID, generator)
    with pytest.raises(ConfigError, match="report noisy max"):
        report_noisy_max_minimum(_tensor((1.0, bad)), 0.3, 1.0, generator)


@pytest.mark.parametrize("values", [(), (0.0, 1.0)])
def test_the_papers_reading_refuses_what_cannot_be_a_clip_norm(values: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="becomes the clip norm"):
        report_noisy_max_minimum(_tensor(values), 0.3, 1.0, np.random.default_rng(0))


@pytest.mark.parametrize("epsilon", [0.0, -0.3, math.nan, math.inf])
def test_an_epsilon_that_is_no_positive_number_is_named(epsilon: float) -> None:
    with pytest.raises(ConfigError, match="epsilon must be a finite number > 0"):
        private_minimum(_sample(), epsilon, GRID, np.random.default_rng(0))
    with pytest.raises(ConfigError, match="epsilon must be a finite number > 0"):
        report_noisy_max_minimum(_sample(), epsilon, 1.0, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("grid", "rule"),
    [
        ([], "one clip norm or more"),
        ([[1.0, 2.0]], "one clip norm or more"),
        ([2.0, 1.0], "strictly increasing"),
        ([1.0, 1.0], "strictly increasing"),
        ([0.0, 1.0], "finite numbers > 0"),
        ([-1.0, 1.0], "finite numbers > 0"),
        ([1.0, math.nan], "finite numbers > 0"),
    ],
)
def test_a_grid_that_cannot_hold_clip_norms_is_named(grid: list, rule: str) -> None:
    with pytest.raises(ConfigError, match=rf"private_minimum\.grid must .*{rule}"):
        private_minimum(_sample(), 0.3, np.array(grid), np.random.default_rng(0))


@pytest.mark.parametrize(
    ("low", "high", "count", "key"), [(0.0, 1.0, 3, "low"), (1.0, 1.0, 3, "high"), (1.0, 2.0, 1, "count")]
)
def test_a_grid_range_out_of_order_is_named(low: float, high: float, count: int, key: str) -> None:
    with pytest.raises(ConfigError, match=rf"private_minimum\.{key}"):
        geometric_grid(low, high, count)


def test_geometric_grid_has_equal_ratios_and_both_ends() -> None:
    grid = geometric_grid(0.1, 10.0, 5)
    np.testing.assert_allclose(grid[1:] / grid[:-1], 100**0.25)
    assert (grid[0], grid[-1]) == (0.1, 10.0)


def test_no_gradient_of_softmax_regression_is_longer_than_its_constant() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, 6, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 4, (50,), generator=generator)
    padded = torch.cat([x, torch.ones(50, 1, dtype=torch.float64)], dim=1)
    weights = torch.randn(7, 4, generator=generator, dtype=torch.float64) * 3
    residual = torch.softmax(padded @ weights, 1) - torch.nn.functional.one_hot(y, 4)
    norms = residual.norm(dim=1) * padded.norm(dim=1)
    assert (norms <= constants(x, include_bias=True) + 1e-12).all()
    assert (constants(x, include_bias=False) < constants(x, include_bias=True)).all()


def test_percentiles_are_linearly_interpolated_and_equal_constants_give_their_value() -> None:
    found = percentile_clip_norms(torch.arange(5.0), (25, 50, 90, 100))
    assert found == pytest.approx({25: 1.0, 50: 2.0, 90: 3.6, 100: 4.0})
    assert percentile_clip_norms(torch.full((4,), 1.5), (0, 40, 100)) == {0: 1.5, 40: 1.5, 100: 1.5}


@pytest.mark.parametrize(
    ("values", "at", "message"),
    [
        ([0.0, 1.0], 0, "dp.clip_percentile=0 gives clip norm 0, which must be > 0"),
        ([1.0, float("nan")], 50, "needs finite constants; 1 are not"),
        ([1.0, 2.0], -1, "must be between 0 and 100, got -1"),
        ([1.0, 2.0], 101, "must be between 0 and 100, got 101"),
    ],
)
def test_a_percentile_that_is_no_clip_norm_is_refused(values: list[float], at: float, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        percentile_clip_norms(torch.tensor(values), (at,))


def test_percentile_of_inverts_the_percentile_clip_norms() -> None:
    values = _sample()
    for percentile, clip_norm in percentile_clip_norms(values, (0, 10, 50, 100)).items():
        assert percentile_of(values, clip_norm) == pytest.approx(percentile, abs=0.01)
