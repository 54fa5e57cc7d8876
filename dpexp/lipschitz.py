"""Per-sample Lipschitz constants of softmax regression: percentiles, and a private choice near the least.

Paper L, Section 4, Remark 5.6 and Appendix D.
"""

import math

import numpy as np
import torch
from torch import Tensor

from dpexp.config import ConfigError, finite_positive


def constants(x: Tensor, include_bias: bool) -> Tensor:
    """sqrt(2) * norm(x) for each row (paper L, Equation 8), a constant 1 appended first if `include_bias`.

    x: [n, d]. Returns float64 [n]. The bound for a head with bias includes the 1; the clip norms that the
    paper prints are percentiles without it.
    """
    squared = torch.linalg.vector_norm(x, dim=1, dtype=torch.float64).square()
    return math.sqrt(2) * torch.sqrt(squared + (1.0 if include_bias else 0.0))


def percentiles(values: Tensor, at: tuple[float, ...]) -> dict[float, float]:
    """Percentiles of the constants, linearly interpolated. NOT private: computed from the data.

    Raises: ConfigError for a percentile outside 0..100 or constants that are not finite.
    """
    array = values.cpu().numpy()
    if not np.isfinite(array).all():
        raise ConfigError(f"dp.clip_percentile needs finite constants; {(~np.isfinite(array)).sum()} are not")
    outside = [p for p in at if not 0 <= p <= 100]
    if outside:
        raise ConfigError(f"dp.clip_percentile must be between 0 and 100, got {outside[0]:g}")
    return {p: float(np.percentile(array, p)) for p in at}


def percentile_clip_norms(values: Tensor, at: tuple[float, ...]) -> dict[float, float]:
    """Percentiles of the constants as clip norms. NOT private: computed from the data.

    Raises: ConfigError as `percentiles`, and for a percentile at which the constant is zero.
    """
    found = percentiles(values, at)
    for percentile, clip_norm in found.items():
        if clip_norm <= 0:
            raise ConfigError(
                f"dp.clip_percentile={percentile:g} gives clip norm {clip_norm:g}, which must be > 0: "
                "some samples have a zero feature vector; use a higher percentile or a fixed dp.clip_norm"
            )
    return found


def percentile_of(values: Tensor, value: float) -> float:
    """Percentage of the constants that lie strictly below `value`. NOT private: for reports only."""
    return float((values.double() < value).double().mean()) * 100


def report_noisy_max_minimum(constants: Tensor, epsilon: float, scale: float, generator: np.random.Generator) -> float:
    """Clip norm by noisy max over the negative constants, as paper L reads it (Remark 5.6, Section 5.2).

    constants: [n]. scale: the sensitivity that is assumed for a score; each score gets Laplace noise of scale
    2 * scale / epsilon (Dwork and Roth 2014, Section 3.3). The paper prints neither the noise nor its scale.
    Guarantee: none. The noise hides which sample won, but the winner's constant is returned as it is, and an
    output that only one sample can produce reveals that sample, whatever the noise. Nor is the index
    protected: replacing a sample moves its score by up to the range of the constants, which no public `scale`
    bounds, and under add/remove the set of candidates changes. It is here to reproduce a table; use
    `private_minimum`.
    Raises: ConfigError for no constants, or one that is not finite and positive (it may be the clip norm).
    """
    _check_positive("epsilon", epsilon)
    _check_positive("scale", scale)
    array = constants.double().cpu().numpy()
    bad = int((~(np.isfinite(array) & (array > 0))).sum())
    if array.size == 0 or bad:
        raise ConfigError(
            "report noisy max needs at least one constant and all finite and > 0, because one becomes the "
            f"clip norm; got {array.size}, {bad} of them not so: drop zero features or fix dp.clip_norm"
        )
    noisy = -array + generator.laplace(scale=2 * scale / epsilon, size=array.size)
    return float(array[noisy.argmax()])


def geometric_grid(low: float, high: float, count: int) -> np.ndarray:
    """`count` clip norms from `low` to `high`, in equal ratios. Choose all three without looking at the data.

    Raises: ConfigError unless 0 < low < high < infinity and count >= 2.
    """
    _check_positive("private_minimum.low", low)
    if not (math.isfinite(high) and high > low):
        raise ConfigError(f"private_minimum.high must be a finite number > low = {low:g}, got {high:g}")
    if count < 2:
        raise ConfigError(f"private_minimum.count must be a whole number >= 2, got {count}")
    return np.geomspace(low, high, count)


def private_minimum_probabilities(
    constants: Tensor, epsilon: float, grid: np.ndarray, power: float = 4.0
) -> np.ndarray:
    """The exact output distribution of `private_minimum` over the grid, [m]. NOT private itself.

    Raises: ConfigError for a setting out of range, or constants that are no norms (nan, infinite, negative).
    """
    _check_positive("epsilon", epsilon)
    values = _checked_grid(grid)
    if not (math.isfinite(power) and power >= 0):
        raise ConfigError(f"private_minimum.power must be a finite number >= 0, got {power:g}")
    array = np.sort(constants.double().cpu().numpy())
    if not (np.isfinite(array) & (array >= 0)).all():
        bad = int((~(np.isfinite(array) & (array >= 0))).sum())
        raise ConfigError(
            f"Lipschitz constants must be finite and >= 0, {bad} of {array.size} are not: check the features"
        )
    below = np.searchsorted(array, values, side="left")
    log_weight = power * np.log(values) - epsilon * below
    weight = np.exp(log_weight - log_weight.max())
    return weight / weight.sum()


def private_minimum(
    constants: Tensor, epsilon: float, grid: np.ndarray, generator: np.random.Generator, power: float = 4.0
) -> float:
    """A clip norm near the smallest constant: exponential mechanism over a public grid with counting scores.

    constants: [n], finite and >= 0; a zero counts like any other, because refusing it would reveal it.
    grid: [m], increasing, > 0, fixed without the data (`geometric_grid`). With c(g) the number of constants
    below g, P(g) is proportional to g^power * exp(-epsilon * c(g)). The same thing said as report noisy max:
    the largest of -c(g) + power * ln(g) / epsilon + Gumbel noise of scale 1 / epsilon.

    Guarantee: epsilon-DP (delta = 0) under adding, removing or replacing one sample, whatever `power`. Proof:
    an added sample raises c(g) by 1 for every g above its constant and by 0 below (sensitivity 1); a replaced
    one changes c(g) by 1 between the two constants, in one direction. So every weight is multiplied by a
    factor in [exp(-epsilon), 1], or every one by a factor in [1, exp(epsilon)], and so is their sum; the
    ratio of a probability to its old value is a quotient of two such factors and lies in [exp(-epsilon),
    exp(epsilon)]. That all scores move the same way is why the exponent is epsilon and not the usual
    epsilon / 2 (McSherry and Talwar 2007; Dwork and Roth 2014, Section 3.4).
    With DP-SGD at (epsilon', delta) the two compose to (epsilon + epsilon', delta).

    Accuracy: let M be the largest grid value at or below the smallest constant. With probability at least 1 -
    beta fewer than ln(sum over the grid of (g / M)^power / beta) / epsilon constants lie below the result. On
    a grid of ratio f the result is below M / f^j with probability at most f^(-power * (j + 1)), so it is
    below M / 2 with probability about 2^-power. A larger power comes closer to M and overshoots by more
    samples.

    Why no stronger promise: if the result were at or below the minimum with probability 1 - beta on every
    data set, then adding one sample with a tiny constant x shows that already without it the result is at
    most x with probability 1 - beta * exp(epsilon): useless. Why this mechanism: scores around a target rank,
    exp(-epsilon * abs(c(g) - rank) / 2), need twice the noise and are flat over all values below the minimum;
    AboveThreshold pays for two noises and a union over the grid; here the distribution is closed, so that
    tests check the guarantee exactly.
    Raises: ConfigError as `private_minimum_probabilities`.
    """
    return float(generator.choice(grid, p=private_minimum_probabilities(constants, epsilon, grid, power)))


def _checked_grid(grid: np.ndarray) -> np.ndarray:
    """The grid as float64, if it can be a list of candidate clip norms."""
    values = np.asarray(grid, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise ConfigError(f"private_minimum.grid must be a list of one clip norm or more, got shape {values.shape}")
    if not (np.isfinite(values) & (values > 0)).all():
        raise ConfigError(f"private_minimum.grid must hold finite numbers > 0, got {values.tolist()}")
    if not (np.diff(values) > 0).all():
        raise ConfigError(f"private_minimum.grid must be strictly increasing, got {values.tolist()}")
    return values


def _check_positive(key: str, value: float) -> None:
    """Refuse what is not a finite number above zero."""
    if not finite_positive(value):
        raise ConfigError(f"{key} must be a finite number > 0, got {value:g}")
