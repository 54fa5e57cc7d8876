"""Epsilon of DP-SGD by three accountants. The only importer of Opacus' and dp-accounting's analyses.

The mechanism is the Gaussian mechanism on Poisson samples, composed over all steps, under add/remove adjacency.

- rdp: Renyi orders of the sampled Gaussian (Mironov, Talwar and Zhang, 2019, Section 3.3), converted by Balle et
  al. (2020), Theorem 21, as Opacus computes them; the paper's own choice, and an upper bound in every setting.
- prv: numerical composition (Gopi, Lee and Wutschitz, 2021) by Opacus; the upper end of its error interval.
- pld: privacy loss distributions, dots connected (Doroshenko et al., 2022), by dp-accounting; an upper bound.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dpexp.config import ConfigError

PRV_ERROR = 0.01  # half width of PRV's interval: its upper end is at least this, even if the true epsilon is 0
PRV_GRID_LIMIT = 4_000_000  # points; about 5 seconds and 0.5 GiB
PRV_DOMAIN_LIMIT = 700.0  # exp(710) overflows a double, and Opacus then reports about 707 whatever the truth is
PLD_BINS = 100_000  # per distribution; about half a second
SMALLEST_DELTA = 1e-14  # below it double precision cannot tell the tail of a composed distribution from 0

# Tried when the best of Opacus' own orders lies at an end. Its binomials overflow from order 1030 on.
LOWER_ORDERS = tuple(1 + x / 1000 for x in (1, 2, 3, 5, 7, *range(10, 100, 5)))
HIGHER_ORDERS = (*range(64, 128, 2), *range(128, 256, 8), *range(256, 1025, 32))


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A sampled Gaussian with noise, composed at least once, and the delta to account it at."""

    sample_rate: float
    noise_multiplier: float
    steps: int
    delta: float


class _NoAnswerError(Exception):
    """An accountant cannot treat a setting; the message says why."""


def check_orders(orders: Sequence[float]) -> None:
    """Raise ConfigError unless every order is above 1, where Renyi divergence converts to (epsilon, delta)."""
    if not orders or not all(order > 1 for order in orders):
        raise ConfigError(f"orders must be one or more numbers > 1, got {list(orders)!r}")


def renyi_divergence(sample_rate: float, noise_multiplier: float, steps: int, order: float) -> float:
    """Renyi divergence of the composed mechanism, in nats, at an order > 1; infinity where it cannot be computed.

    Raises: ConfigError for an order <= 1.
    """
    from opacus.accountants.analysis import rdp as analysis

    check_orders([order])
    try:
        # a nan would keep Opacus' series for fractional orders going for ever
        with np.errstate(invalid="raise", over="raise"):
            one = analysis.compute_rdp(q=sample_rate, noise_multiplier=noise_multiplier, steps=1, orders=float(order))
    except (ValueError, ArithmeticError):
        return math.inf  # an order that is left out only makes the bound larger
    # rounding may leave a divergence just below 0, and steps would multiply it
    return math.inf if math.isnan(one) else max(float(one), 0.0) * steps


def _best(setting: Setting, orders: Sequence[float]) -> tuple[float, float]:
    """The smallest epsilon over the orders, and the order that gives it."""
    from opacus.accountants.analysis import rdp as analysis

    s = setting
    divergences = [renyi_divergence(s.sample_rate, s.noise_multiplier, s.steps, order) for order in orders]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "largest alpha": the caller widens the grid, or notes that it could not
        epsilon, order = analysis.get_privacy_spent(orders=list(orders), rdp=divergences, delta=s.delta)
    return max(float(epsilon), 0.0), float(order)  # (e, delta)-DP with e < 0 implies (0, delta)-DP


def rdp_epsilon(setting: Setting, orders: Sequence[float] | None = None) -> tuple[float, tuple[str, ...]]:
    """Epsilon by RDP and notes on it. orders=None: Opacus' grid, widened where its best order is at an end."""
    from opacus.accountants import RDPAccountant

    grid = list(orders or RDPAccountant.DEFAULT_ALPHAS)
    epsilon, order = _best(setting, grid)
    if orders is None and order in (grid[0], grid[-1]):
        wider = LOWER_ORDERS if order == grid[0] else HIGHER_ORDERS
        grid = sorted({*grid, *wider})
        epsilon, order = min((epsilon, order), _best(setting, wider))
    if math.isinf(epsilon) or order not in (min(grid), max(grid)):
        return epsilon, ()
    return epsilon, (f"rdp: its best order, {order:g}, is at the end of the grid; a wider one may do better",)


def prv_epsilon(setting: Setting, epsilon_rdp: float) -> float:
    """The upper end of the PRV interval; _NoAnswerError where double precision or memory would not carry it."""
    from opacus.accountants import PRVAccountant
    from opacus.accountants.analysis import prv as analysis

    s = setting
    delta_error = s.delta / 1000
    one = analysis.PoissonSubsampledGaussianPRV(s.sample_rate, s.noise_multiplier)
    domain = analysis.compute_safe_domain_size([one], [s.steps], PRV_ERROR, delta_error)
    if not domain <= PRV_DOMAIN_LIMIT:
        raise _NoAnswerError(f"its domain reaches {domain:.4g}, beyond the {PRV_DOMAIN_LIMIT:g} that doubles carry")
    points = 2 * domain / (PRV_ERROR / math.sqrt(s.steps * math.log(12 / delta_error) / 2))  # Gopi et al., Theorem 5.5
    if points > PRV_GRID_LIMIT:
        raise _NoAnswerError(f"it needs a grid of {points:.2g} points, more than {PRV_GRID_LIMIT:.2g}")
    if points * 2.0**-52 > s.delta:  # Opacus tests this with long doubles, but composes with doubles
        raise _NoAnswerError(f"rounding errors of {points:.2g} points exceed delta = {s.delta:g}")
    accountant = PRVAccountant()
    accountant.history = [(s.noise_multiplier, s.sample_rate, s.steps)]
    epsilon = float(accountant.get_epsilon(s.delta, eps_error=PRV_ERROR, delta_error=delta_error))
    if not 0 <= epsilon <= epsilon_rdp + 3 * PRV_ERROR:  # its error, its margin, and a third for delta_error
        raise _NoAnswerError(f"its answer {epsilon:.6g} contradicts the upper bound {epsilon_rdp:.6g} by RDP")
    return epsilon


def _discretisation(setting: Setting, epsilon_rdp: float) -> float:
    """Bin width for PLD: 1e-4, less where one step loses less than that, more where the range would be long.

    Wider bins round the loss up, so they may only overstate epsilon.
    """
    q, sigma = setting.sample_rate, setting.noise_multiplier
    tail = 10 / sigma + 1 / (2 * sigma**2)  # loss of the unsampled Gaussian at 10 sigma, mass exp(-50)
    one_step = tail + math.log(q + (1 - q) * math.exp(-tail))
    return max(min(1e-4, 0.1 * q / sigma), one_step / PLD_BINS, epsilon_rdp / PLD_BINS)


def pld_epsilon(setting: Setting, epsilon_rdp: float) -> float:
    """Epsilon by PLD, or _NoAnswerError where it is infinite."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    gaussian = dp_accounting.GaussianDpEvent(setting.noise_multiplier)
    accountant = PLDAccountant(value_discretization_interval=_discretisation(setting, epsilon_rdp))
    accountant.compose(dp_accounting.PoissonSampledDpEvent(setting.sample_rate, gaussian), setting.steps)
    epsilon = float(accountant.get_epsilon(setting.delta))
    if not math.isfinite(epsilon):
        raise _NoAnswerError(f"its truncated tails weigh more than delta = {setting.delta:g}")
    return epsilon


NUMERICAL: dict[str, Callable[[Setting, float], float]] = {"prv": prv_epsilon, "pld": pld_epsilon}


def numerical_epsilon(name: str, setting: Setting, epsilon_rdp: float) -> tuple[float | None, tuple[str, ...]]:
    """Epsilon by PRV or PLD and notes on it; None where RDP has to stand in."""
    try:
        if setting.delta < SMALLEST_DELTA:
            raise _NoAnswerError(f"delta = {setting.delta:g} is below {SMALLEST_DELTA:g}")
        if not math.isfinite(epsilon_rdp):
            raise _NoAnswerError(f"no bound for noise multiplier {setting.noise_multiplier:g}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what they warn of (domain, log 0) is checked against RDP
            epsilon = NUMERICAL[name](setting, epsilon_rdp)
    except (_NoAnswerError, RuntimeError, ValueError, ArithmeticError, MemoryError) as error:
        return None, (f"{name} failed: {error}; RDP, an upper bound, is used instead",)
    if epsilon > epsilon_rdp + 1e-6:
        return epsilon, (f"{name}: {epsilon:.6g} lies above {epsilon_rdp:.6g} by RDP; both are upper bounds",)
    return epsilon, ()


def composed_pld_epsilon(parts: Sequence[tuple[float, float, int]], delta: float) -> float:
    """Epsilon by PLD of sampled Gaussians (sample rate, noise multiplier, how often) released together.

    An upper bound under add/remove adjacency; infinity without noise, or where the tails weigh more than delta.
    """
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant()
    for rate, sigma, times in parts:
        if sigma == 0:
            return math.inf
        accountant.compose(dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma)), times)
    return float(accountant.get_epsilon(delta))
