"""The convergence theory of paper L as numbers: alpha(tau), the risk bound, and the heavy-tail settings.

Everything is stated in phi = sqrt(nu * d * ln(1/delta)) / (n * epsilon) (Equation 1), and the noise of
Theorem 3.4 becomes noise_std^2 = steps * (clip_norm * phi)^2 / d. No epsilon is computed here and none may be
read off: nu is "an absolute constant" that the paper does not state, and the theorem holds only for epsilon
below an unstated multiple of (b/n)^2 * T. Training therefore takes its noise from an accountant, never from
this formula.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True, kw_only=True)
class AbsoluteLosses:
    """f_i(w) = G_i * |u_i . w - c_i| for w in the plane: convex, G_i-Lipschitz, least value 0 each.

    lipschitz: G_i, [n], increasing. directions: u_i, [n, 2], unit length and not all parallel. offsets: c_i,
    [n]. The lines u_i . w = c_i cut the plane into cells on which every f_i is affine; that makes f's minimum
    and alpha(tau) finite searches over the lines' crossings.
    """

    lipschitz: np.ndarray
    directions: np.ndarray
    offsets: np.ndarray

    def __post_init__(self) -> None:
        assert self.directions.shape == (self.lipschitz.size, 2)
        assert self.offsets.shape == self.lipschitz.shape
        assert (self.lipschitz > 0).all()
        assert (np.diff(self.lipschitz) > 0).all(), "Assumption 5.1: 0 < G_1 < ... < G_n"

    def residuals(self, w: np.ndarray) -> np.ndarray:
        """u_i . w - c_i for points w [..., 2], as [..., n]."""
        return w @ self.directions.T - self.offsets

    def risk(self, w: np.ndarray) -> np.ndarray:
        """f(w), the mean of the losses (Equation 3), for points w [..., 2]."""
        return np.abs(self.residuals(w)) @ self.lipschitz / self.lipschitz.size

    @cached_property
    def crossings(self) -> np.ndarray:
        """Points where two of the lines meet, [m, 2]; parallel pairs have none."""
        first, second = np.triu_indices(self.lipschitz.size, 1)
        (a, b), (c, d) = self.directions[first].T, self.directions[second].T
        p, q = self.offsets[first], self.offsets[second]
        determinant = a * d - b * c
        meets = np.abs(determinant) > 1e-9
        numerators = np.stack([p * d - q * b, a * q - c * p], axis=1)
        return numerators[meets] / determinant[meets, None]

    @cached_property
    def minimiser(self) -> np.ndarray:
        """A minimiser of f, [2]: a piecewise linear convex function takes its minimum at a crossing."""
        return self.crossings[self.risk(self.crossings).argmin()]

    @cached_property
    def interpolation_gap(self) -> float:
        """Delta(w*) of Definition 5.2: how far the samples are from sharing a minimiser. f_i* is 0 here."""
        return float(self.risk(self.minimiser))

    def distance(self, start: np.ndarray) -> float:
        """|w_0 - w*| from a point, [2]."""
        return float(np.linalg.norm(start - self.minimiser))


def alpha(losses: AbsoluteLosses, clip_norm: float) -> float:
    """alpha(tau) of Definition 5.3, exactly.

    On a cell numerator and denominator are affine and the denominator is positive outside the minimisers, so
    the ratio has no interior extremum: its infimum is its value at a crossing or its limit along an unbounded
    edge, that is along some line. Paper L defines it up to G_n; beyond, the same formula gives G_n / tau,
    with which the bound of Theorem 5.4 stays true (nothing is clipped, the noise grows on).
    """
    G = losses.lipschitz
    along_lines = losses.directions[:, ::-1] * np.array([-1.0, 1.0])
    heights = np.abs(np.concatenate([losses.residuals(losses.crossings), along_lines @ losses.directions.T]))
    below = heights @ (G / G[-1])
    above = heights @ np.minimum(G / clip_norm, 1.0)
    counted = below > 1e-9 * G.size  # where all samples interpolate, the minimiser itself is 0 / 0 and excluded
    return float((above[counted] / below[counted]).min())


@dataclass(frozen=True, kw_only=True)
class RiskBound:
    """The terms of Theorem 5.4: (A) noise and optimisation, (B) bias of clipping without interpolation."""

    term_a: float
    term_b: float

    @property
    def total(self) -> float:
        """Upper bound on the optimisation risk."""
        return self.term_a + self.term_b


def best_constant(distance: float) -> float:
    """The free constant C that minimises term (A), |w_0 - w*| / sqrt(2)."""
    return distance / math.sqrt(2)


def learning_rate(C: float, clip_norm: float, phi: float, steps: int) -> float:
    """The learning rate of Theorems H.1, J.1 and K.1; 3 C phi / (2 tau) at the steps of Theorem 5.4."""
    return C / (steps * clip_norm * math.sqrt(1 / steps + phi**2))


def risk_bound(losses: AbsoluteLosses, clip_norm: float, phi: float, start: np.ndarray, C: float) -> RiskBound:
    """Theorem 5.4 in the form of Theorem H.1, with T = ceil(1 / (3 phi^2)) steps from `start`, [2]."""
    steps = convex_steps(phi)
    G_n, ratio = float(losses.lipschitz[-1]), alpha(losses, clip_norm)
    distance = losses.distance(start)
    noise = (distance**2 / (2 * C) + C) * G_n * math.sqrt(1 / steps + phi**2)
    bias = G_n / (clip_norm * ratio) - 1 if clip_norm < G_n else 0.0  # nothing is clipped from G_n on
    return RiskBound(term_a=noise / ratio, term_b=bias * losses.interpolation_gap)


def convex_steps(phi: float) -> int:
    """T = 1 / (3 phi^2) of Theorem 5.4, rounded up."""
    return _ceiling(1 / (3 * phi**2))


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a theorem of Section 6 prescribes for Algorithm 1, and the risk that it then promises."""

    clip_norm: float
    learning_rate: float
    steps: int
    bound: float


@dataclass(frozen=True, kw_only=True)
class HeavyTail:
    """The constants that Section 6 takes as known.

    k: order of the bounded moment, math.inf for uniform Lipschitzness. G: (E[G_i^k])^(1/k), Assumption 6.1.
    phi: Equation 1. C: free constant. distance: |w_0 - w*|. gamma: the data may be unlucky with this
    probability (Theorems 6.2 and 6.8; it is 1/4 in Theorem 6.5).
    """

    k: float
    G: float
    phi: float
    C: float
    distance: float
    gamma: float = 0.25

    @property
    def steps(self) -> int:
        """T = 1 / phi^2, rounded up."""
        return _ceiling(1 / self.phi**2)

    @property
    def spread(self) -> float:
        """1/T + phi^2, which all bounds of Section 6 are powers of."""
        return 1 / self.steps + self.phi**2

    def convex(self) -> Setting:
        """Theorem 6.2, full version J.1: convex, unconstrained; risk O(phi^(1 - 2/(k+1)))."""
        scale = self.G * self.gamma ** (-1 / self.k)
        rate = 1 - 2 / (self.k + 1)
        bound = 0.5 * (self.distance**2 / self.C + 4 * self.C) * self.spread ** (rate / 2)
        bound += (self.distance + self.C) * self.spread**rate
        return self._setting(scale * self.spread ** (-1 / (self.k + 1)), scale * bound)

    def convex_sharp(self, radius: float) -> Setting:
        """Theorem 6.5, full version K.1: under Assumption 6.4 beyond `radius` (the paper's D)."""
        rate = 1 - 1 / self.k
        bound = (self.distance**2 / self.C + 2 * self.C) * self.spread ** (rate / 2)
        bound += 16 * self.phi**rate * radius
        return self._setting(self.G * self.spread ** (-1 / (2 * self.k)), self.G * bound)

    def nonconvex(self, smoothness: float, gap: float) -> Setting:
        """Theorem 6.8, full version N.1: f is `smoothness`-smooth and starts `gap` above its infimum.

        The risk is the mean squared gradient norm, O(phi^(1 - 1/(2k-1))).
        """
        p, root = 1 / (2 * self.k - 1), math.sqrt(smoothness)
        clip_norm = self.G * (self.G / (self.gamma**2 * self.C * root)) ** p * self.spread ** (-p / 2)
        bound = root ** (1 - p) * self.G ** (1 + p) / (self.gamma ** (2 * p) * self.C**p)
        bound *= (3 * self.C + 2 * gap / self.C) * self.spread ** ((1 - p) / 2)
        return self._setting(clip_norm, bound, root)

    def _setting(self, clip_norm: float, bound: float, root: float = 1.0) -> Setting:
        """The common learning rate, divided by sqrt(L) in the nonconvex case."""
        rate = learning_rate(self.C, clip_norm, self.phi, self.steps) / root
        return Setting(clip_norm=clip_norm, learning_rate=rate, steps=self.steps, bound=bound)


def exponent(theorem: str, k: float) -> float:
    """The power of phi that Theorem `6.2`, `6.5` or `6.8` promises (paper L, Table 2)."""
    return {"6.2": 1 - 2 / (k + 1), "6.5": 1 - 1 / k, "6.8": 1 - 1 / (2 * k - 1)}[theorem]


def _ceiling(value: float) -> int:
    """The next whole number, where rounding error above a whole number does not count."""
    return math.ceil(value * (1 - 1e-12))
