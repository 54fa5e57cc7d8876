"""Renyi accounting as paper S and DPSUR do it: a grid of orders, and the conversion to (epsilon, delta)."""

import math
from functools import lru_cache

import numpy as np

from dpexp.accountants import renyi_divergence

MOST = 10**9  # releases; more would cost next to nothing, or nothing at all in double precision
ORDERS = np.array([*(1 + x / 10 for x in range(1, 100)), *range(11, 64), 128, 256, 512])  # DPSUR's


@lru_cache(maxsize=256)
def _sampled_gaussian(sample_rate: float, noise_multiplier: float) -> tuple[float, ...]:
    if noise_multiplier == 0:
        return (math.inf,) * len(ORDERS)
    return tuple(renyi_divergence(sample_rate, noise_multiplier, 1, order) for order in ORDERS)


def sampled_gaussian(sample_rate: float, noise_multiplier: float) -> np.ndarray:
    """Renyi divergence of one Poisson-sampled Gaussian at every order (Mironov, Talwar and Zhang 2019)."""
    return np.array(_sampled_gaussian(sample_rate, noise_multiplier))


def statistics(noise_multiplier: float | None) -> np.ndarray:
    """Renyi divergence of noisy channel statistics: two Gaussians on the whole data set; zeros without them."""
    return ORDERS / noise_multiplier**2 if noise_multiplier else np.zeros(len(ORDERS))


def epsilon(divergence: np.ndarray, delta: float) -> float:
    """The smallest epsilon over all orders (Balle et al. 2020, Theorem 21; paper S, Lemma 2.4), at least 0."""
    converted = divergence + np.log1p(-1 / ORDERS) - (math.log(delta) + np.log(ORDERS)) / (ORDERS - 1)
    return max(0.0, float(converted.min()))


def largest_count(once: np.ndarray, fixed: np.ndarray, target: float, delta: float) -> int:
    """The largest number of releases whose epsilon, with what is fixed, stays below the target; 0 if none does.

    once, fixed: Renyi divergences at every order. Guarantee: at most MOST.
    """
    if not epsilon(fixed + once, delta) < target:
        return 0
    low, high = 1, 2
    while low < MOST and epsilon(fixed + high * once, delta) < target:
        low, high = high, 2 * high
    if low >= MOST:
        return MOST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if epsilon(fixed + middle * once, delta) < target else (low, middle)
    return low
