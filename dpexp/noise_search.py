"""The least noise that meets a privacy target, for any account that falls as the noise grows."""

import math
from collections.abc import Callable

from scipy.optimize import brentq

LARGEST_SIGMA = 1e6
SMALLEST_SIGMA = 1e-6

Epsilon = Callable[[float], float]  # noise multiplier -> epsilon


def _bracket(epsilon_at: Epsilon, target: float, start: float, factor: float) -> tuple[float, float]:
    """(low, high) with epsilon(high) <= target < epsilon(low), unless one of them is an end of the range."""
    low = high = start
    while epsilon_at(high) > target and high < LARGEST_SIGMA:
        low, high, factor = high, min(high * factor, LARGEST_SIGMA), factor**2
    while (low == high or epsilon_at(low) <= target) and SMALLEST_SIGMA < low < LARGEST_SIGMA:
        low, high, factor = max(low / factor, SMALLEST_SIGMA), low, factor**2
    return low, high


def _round_up(sigma: float) -> float:
    """The next multiple of 1e-5, or of a smaller power of ten where that would leave under five digits."""
    digits = max(5, 4 - math.floor(math.log10(sigma)))
    return math.ceil(sigma * 10**digits - 1e-6) / 10**digits  # 1e-6: a multiple stays itself despite rounding


def smallest_noise_multiplier(epsilon_at: Epsilon, target: float, start: float, factor: float) -> float:
    """The smallest noise multiplier with epsilon <= target, to about 1e-5 and rounded up.

    start, factor: where the search begins and its first stride. An end of the range where no noise multiplier in it
    is the answer; the caller compares epsilon there with the target.
    """
    low, high = _bracket(epsilon_at, target, start, factor)
    if not epsilon_at(low) > target >= epsilon_at(high):
        return high

    def excess(log_sigma: float) -> float:
        ratio = epsilon_at(math.exp(log_sigma)) / target
        return math.log(min(max(ratio, 0.01), 100))  # the sign decides; 0 and infinity only need a side

    sigma = _round_up(math.exp(brentq(excess, math.log(low), math.log(high), xtol=2e-6, maxiter=100)))
    for _ in range(20):  # the root may lie on either side of the target
        if epsilon_at(sigma) <= target:
            break
        sigma = _round_up(sigma * (1 + 1e-5))
    return sigma
