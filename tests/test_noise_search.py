"""The search against functions whose root is known."""

import math

import pytest

from dpexp.noise_search import smallest_noise_multiplier


@pytest.mark.parametrize("start", [1e-3, 1.0, 40.0])
@pytest.mark.parametrize("root", [0.00123, 0.7, 1234.5])
def test_search_finds_the_root_of_any_falling_function_and_rounds_up(start, root):
    calls = []

    def epsilon_at(sigma: float) -> float:
        calls.append(sigma)
        return (root / sigma) ** 2

    found = smallest_noise_multiplier(epsilon_at, 1.0, start, 2.0)
    assert root <= found <= root * (1 + 2e-5) + 1e-9
    assert len(calls) < 50


def test_search_ends_at_a_jump_and_at_both_ends_of_its_range():
    assert smallest_noise_multiplier(lambda s: math.inf if s < 0.5 else 0.0, 1.0, 1.0, 2.0) == 0.5
    assert smallest_noise_multiplier(lambda s: 5.0, 1.0, 1.0, 2.0) == 1e6
    assert smallest_noise_multiplier(lambda s: 0.0, 1.0, 1.0, 2.0) < 1e-3
