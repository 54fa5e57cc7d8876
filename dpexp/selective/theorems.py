"""What one accepted update of a selective release costs, in Renyi divergence: two theorems derived for this project.

DERIVED HERE, REVIEWED AND CHECKED NUMERICALLY, NOT PEER REVIEWED. One accepted update is the first of independent
trials that is accepted. A trial takes a Poisson sample S, is accepted with probability a(S) that depends on S and
public values alone, and releases a Gaussian whose mean one record z moves by at most 1 / sigma (in standard
deviations). With r(S) = a(S + z) / a(S) in [r_min, r_max]:

Theorem A (counts of trials hidden). By joint convexity of (u, v) -> u^a v^(1-a) over the law of S given acceptance,
    add:     (a-1) D_a(with z || without) <= ln E[A_a(r)] - a ln(1 - q + q E[r])
    remove:  (a-1) D_a(without || with z) <= ln E[B_a(r)] + (a-1) ln(1 - q + q E[r])
with A_a(r) = E[(1 - q + q r L)^a], B_a(r) = E[(1 - q + q r L)^(1-a)] and L the likelihood ratio of N(1/sigma, 1) to
N(0, 1) under N(0, 1). Both are convex in r, so the worst law of r has two points; the weight of r_max that maximises
either bound has a closed form.

Theorem B (counts public). Given the past, the number of trials is geometric and independent of what is released:
its own divergence is added.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import gammaln, logsumexp, ndtr, ndtri
from scipy.stats import norm

STEP, REACH = 0.005, 12.0  # of the quadrature, in standard deviations
SMALLEST_SIGMA = 0.05  # below it the quadrature is too coarse, and the bound is left out: infinity
LARGEST_LOG = 700.0  # e to the power of it is still a double
CELLS, HALVINGS = 64, 60  # of the acceptance probabilities between which the counts' divergence is bounded
PRECISION, NEGLIGIBLE = 1e-3, 1e-12  # of that bound: relative, and in nats


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """How acceptance depends on one record. A trial passes if d + N(0, std^2) > threshold, |d| <= clip_range.

    sensitivity: how far one record moves d, at most 2 * clip_range. signed: whether it may raise d, not only lower it.
    std: 0 (d decides alone) to infinity (chance decides alone).
    """

    threshold: float
    clip_range: float
    std: float
    sensitivity: float
    signed: bool

    def _exceeded(self, gap: float) -> float:
        """The probability that the noise alone exceeds a gap."""
        if self.std == 0 or math.isinf(gap):
            return float(gap < 0)
        return float(norm.sf(gap / self.std))

    @property
    def smallest(self) -> float:
        """The acceptance probability of the worst batch."""
        return self._exceeded(self.threshold + self.clip_range)

    @property
    def largest(self) -> float:
        """The acceptance probability of the best batch."""
        return self._exceeded(self.threshold - self.clip_range)

    @property
    def moved(self) -> float:
        """How far one record moves the clipped difference."""
        return min(self.sensitivity, 2 * self.clip_range)

    @property
    def inflation(self) -> float:
        """rho: the largest ratio of acceptance probabilities of two batches that differ in one record.

        The ratio is largest at the upper end of the gap, threshold + clip_range (paper S, Theorem 3.1 and Table 1).
        Infinite where one record decides alone, or where the ratio overflows; 1 if all batches fare the same.
        """
        if math.isinf(self.threshold) or (self.std == 0 and self.smallest == self.largest):
            return 1.0
        top = self.threshold + self.clip_range
        if self.std == 0 or math.isinf(top / self.std):
            return math.inf
        log_ratio = norm.logsf((top - self.moved) / self.std) - norm.logsf(top / self.std)
        return math.exp(log_ratio) if log_ratio < LARGEST_LOG else math.inf

    @property
    def ratios(self) -> tuple[float, float]:
        """r_min and r_max."""
        return 1 / self.inflation, self.inflation if self.signed else 1.0


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf


def _log_likelihood_ratio(order: float, sigma: float) -> tuple[np.ndarray, np.ndarray]:
    """ln L on a grid that covers N(0, 1) and its tilt by `order`, and the log of the grid's weights."""
    low, high = min(0.0, order / sigma) - REACH, max(0.0, order / sigma) + REACH
    x = low + STEP * np.arange(math.ceil((high - low) / STEP))  # np.arange(low, high, STEP) would round STEP
    return x / sigma - 1 / (2 * sigma**2), norm.logpdf(x) + math.log(STEP)


def log_add(order: float, sample_rate: float, sigma: float, ratio: float) -> float:
    """ln A_a(r). Whole orders: the binomial sum; others: quadrature. sample_rate: 0 < q <= 1."""
    q = sample_rate
    if ratio == 0:
        return order * _log(1 - q)
    if q == 1:
        return order * math.log(ratio) + order * (order - 1) / (2 * sigma**2)
    if order == int(order):
        k = np.arange(int(order) + 1)
        binomial = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
        terms = binomial + (order - k) * math.log1p(-q) + k * math.log(q * ratio) + k * (k - 1) / (2 * sigma**2)
        return float(logsumexp(terms))
    log_ratio, weight = _log_likelihood_ratio(order, sigma)
    return float(logsumexp(weight + order * np.logaddexp(math.log1p(-q), math.log(q * ratio) + log_ratio)))


def log_remove(order: float, sample_rate: float, sigma: float, ratio: float) -> float:
    """ln B_a(r), by quadrature."""
    q = sample_rate
    if ratio == 0:
        return (1 - order) * _log(1 - q)
    if q == 1:
        return (1 - order) * math.log(ratio) + order * (order - 1) / (2 * sigma**2)
    log_ratio, weight = _log_likelihood_ratio(1 - order, sigma)
    return float(logsumexp(weight + (1 - order) * np.logaddexp(math.log1p(-q), math.log(q * ratio) + log_ratio)))


def _log_mixture(first: float, second: float, share: float) -> float:
    """ln((1 - share) e^first + share e^second)."""
    if share in (0.0, 1.0):
        return second if share else first
    return float(np.logaddexp(math.log1p(-share) + first, math.log(share) + second))


def _worst_shares(order: float, low: float, width: float, log_a: tuple[float, float]) -> list[float]:
    """Where the bounds may be largest: both ends, and where the derivative in the share of r_max vanishes."""
    rise = -math.expm1(log_a[0] - log_a[1])  # 1 - A(r_min) / A(r_max), or 1 - B(r_max) / B(r_min) with them exchanged
    if width == 0 or rise <= 0:
        return [0.0, 1.0]
    inner = low / ((order - 1) * width) - order * (1 - rise) / ((order - 1) * rise)
    return [0.0, 1.0, min(max(inner, 0.0), 1.0)]


def bound_a(order: float, sample_rate: float, sigma: float, ratios: tuple[float, float]) -> tuple[float, float]:
    """Theorem A at an order > 1: (add, remove), in nats for one accepted update.

    sigma: noise multiplier of all that an accepted update releases together. ratios: (r_min, r_max).
    Guarantee: the larger one bounds the Renyi divergence in both directions under add/remove adjacency. Infinite where
    there is hardly any noise, or where one record decides about acceptance alone and is known to be in the batch.
    """
    q, (least, most) = sample_rate, ratios
    low, width = 1 - q + q * least, q * (most - least)
    if sigma < SMALLEST_SIGMA or math.isinf(most) or low == 0:
        return math.inf, math.inf
    if math.isinf(sigma) and width == 0:
        return 0.0, 0.0
    a = log_add(order, q, sigma, least), log_add(order, q, sigma, most)
    b = log_remove(order, q, sigma, least), log_remove(order, q, sigma, most)
    add = [_log_mixture(*a, s) - order * math.log(low + width * s) for s in _worst_shares(order, low, width, a)]
    fall = -math.expm1(b[1] - b[0])
    shares = [0.0, 1.0]
    if width > 0 and fall > 0:
        shares.append(min(max((order - 1) / (order * fall) - low / (order * width), 0.0), 1.0))
    remove = [_log_mixture(*b, s) + (order - 1) * math.log(low + width * s) for s in shares]
    return max(add) / (order - 1), max(remove) / (order - 1)


def geometric(order: float, p: np.ndarray, other: np.ndarray) -> np.ndarray:
    """D_a(Geom(p) || Geom(other)) of the numbers of trials, elementwise; infinite where the first's tail is heavier.

    p, other: acceptance probabilities in [0, 1].
    """
    p, other = np.asarray(p, dtype=np.float64), np.asarray(other, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        tail = order * np.log1p(-p) + (1 - order) * np.log1p(-other)
        found = (order * np.log(p) + (1 - order) * np.log(other) - np.log(-np.expm1(tail))) / (order - 1)
    found = np.where((tail < 0) & (p > 0) & (other > 0), found, np.inf)
    found = np.where((p == 1) & (other > 0), -np.log(np.where(other > 0, other, 1.0)), found)
    return np.where(p == other, 0.0, found)


def _with_record(u: np.ndarray, sample_rate: float, test: Acceptance, rises: bool) -> np.ndarray:
    """The extreme acceptance probability with the record, elementwise, where it is u without; grows with u."""
    q, c = sample_rate, test.moved / test.std
    if rises:
        return (1 - q) * u + q * np.minimum(ndtr(ndtri(u) + c), test.largest)
    return (1 - q) * u + q * np.maximum(ndtr(ndtri(u) - c), test.smallest)


def _either_way(order: float, p: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The larger divergence of the counts of two acceptance probabilities, elementwise."""
    return np.maximum(geometric(order, p, other), geometric(order, other, p))


def _largest_divergence(order: float, edges: np.ndarray, extreme: Callable[[np.ndarray], np.ndarray]) -> float:
    """An upper bound, tight to PRECISION, of the divergence between u and extreme(u) for all u between the edges.

    The divergence of a one-parameter exponential family grows as either parameter moves away from the other, and
    extreme(u) grows with u: within a cell no pair is farther apart than its corners. Cells whose corners exceed what
    their edges reach are halved.
    """
    left, right, reached = edges[:-1], edges[1:], 0.0
    for _ in range(HALVINGS):
        first, last = extreme(left), extreme(right)
        reached = max(reached, *(float(_either_way(order, *p).max()) for p in ((left, first), (right, last))))
        most = reached * (1 + PRECISION) + NEGLIGIBLE
        open_ = np.maximum(_either_way(order, left, last), _either_way(order, right, first)) > most
        if not open_.any():
            return most
        middle = (left[open_] + right[open_]) / 2
        left, right = np.concatenate([left[open_], middle]), np.concatenate([middle, right[open_]])
    return math.inf


def counts(order: float, sample_rate: float, test: Acceptance) -> float:
    """The divergence that public counts of trials add to an accepted update: the larger of both directions.

    With u the acceptance probability without the record, the one with it lies between (1-q) u + q h(u) and u (or its
    mirror image above u, if a record may raise d), where h is the acceptance probability after the largest shift:
    h is convex, so this holds by Jensen for every law of the batch. Infinite without noise, unless all batches fare
    the same.
    """
    if test.inflation == 1:
        return 0.0
    if math.isinf(test.inflation) or test.smallest == 0:
        return math.inf
    edges = np.linspace(test.smallest, test.largest, CELLS + 1)
    ways = (False, True) if test.signed else (False,)
    return max(
        _largest_divergence(order, edges, partial(_with_record, sample_rate=sample_rate, test=test, rises=rises))
        for rises in ways
    )


def bound_b(order: float, sample_rate: float, sigma: float, test: Acceptance) -> float:
    """Theorem B: one accepted update together with its number of trials, in nats, the worse direction."""
    return max(bound_a(order, sample_rate, sigma, test.ratios)) + counts(order, sample_rate, test)
