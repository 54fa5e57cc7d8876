"""One accepted update of a selective release, exactly: every Poisson subset of a few records, quadrature over releases.

The slow reference of the theorems. Everything is written out from the definition of the mechanism and shares no formula
with the code it judges.
"""

import itertools
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import logsumexp
from scipy.stats import binom, norm

MARGIN = 9.0  # standard deviations of the grid beyond the outermost mean that counts


@dataclass(frozen=True, kw_only=True)
class World:
    """Records with gradients g [n, k] and metrics e [n], one more with gz [k] and ez; clip norm 1.

    st, sr, sv: noise of the gradient, of the released reference (inf: none) over the metric bound, of the test.
    """

    g: np.ndarray
    e: np.ndarray
    gz: np.ndarray
    ez: float
    R: float
    q: float
    st: float
    sr: float
    sv: float
    tau: float
    Cmax: float
    Ce: float
    signed: bool
    order: float

    @property
    def sigma(self):
        """Noise multiplier of gradient and reference together."""
        return (self.st**-2 + self.sr**-2) ** -0.5

    def acceptance(self, metric):
        """The probability that a batch with this metric is released."""
        difference = np.clip(self.R - metric, -self.Cmax, self.Cmax)
        return norm.sf((self.tau - difference) / self.sv)

    def subsets(self):
        """Weights [2^n], means [2^n, k + 1] in standard deviations, and metrics [2^n] without the record."""
        n = len(self.e)
        member = np.array(list(itertools.product((0, 1), repeat=n))).reshape(2**n, n)
        weight = np.prod(np.where(member == 1, self.q, 1 - self.q), axis=1)
        metric = member @ self.e
        gradient = (member @ self.g.reshape(n, len(self.gz))) / self.st
        return weight, self.with_reference(gradient, metric), metric

    def with_reference(self, gradient, metric):
        """Means of all that is released: the reference is a column more, if there is one."""
        if math.isinf(self.sr):
            return gradient
        return np.concatenate([gradient, metric[:, None] / (self.sr * self.Ce)], axis=1)


def _log_densities(means, points):
    """ln of unit Gaussian densities [points, means]."""
    squares = (points**2).sum(axis=1)[:, None] - 2 * points @ means.T + (means**2).sum(axis=1)
    return -squares / 2 - means.shape[1] * math.log(2 * math.pi) / 2


def _grid(means, order, step):
    """Points [m, k] that hold the mass of any p^a p'^(1-a) of mixtures with these means."""
    low, high = means.min(axis=0), means.max(axis=0)
    reach = MARGIN + (order - 1) * (high - low)
    axes = [np.arange(a - r, b + r + step, step) for a, b, r in zip(low, high, reach, strict=True)]
    return np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)


def exact(world, step=0.2):
    """The divergences of one accepted update and of its number of trials, both directions, and acceptance."""
    weight, without, metric = world.subsets()
    shift = world.with_reference(world.gz[None] / world.st, np.array([world.ez]))
    absent, present = (weight * world.acceptance(metric + d) for d in (0.0, world.ez))
    joint = np.concatenate([(1 - world.q) * absent, world.q * present])
    means = np.concatenate([without, without + shift])
    points = _grid(means, world.order, step)
    logs = _log_densities(means, points)
    p_without, p_with = absent.sum(), joint.sum()
    first = logsumexp(logs, axis=1, b=joint[None]) - math.log(p_with)
    second = logsumexp(logs[:, : len(absent)], axis=1, b=absent[None]) - math.log(p_without)
    cell, a = points.shape[1] * math.log(step), world.order

    def divergence(p, other):
        return float(logsumexp(a * p + (1 - a) * other + cell)) / (a - 1)

    return {
        "add": divergence(first, second),
        "rem": divergence(second, first),
        "P": p_with,
        "Pp": p_without,
        "geom_add": counted(a, p_with, p_without),
        "geom_rem": counted(a, p_without, p_with),
    }


def counted(order, p, other):
    """D_a of two geometric laws, by summing the series until it has converged or has become infinite."""
    growth = order * math.log1p(-p) + (1 - order) * math.log1p(-other)
    if growth >= 0:
        return math.inf
    k = np.arange(math.ceil(-60 / growth) + 1)
    first = order * math.log(p) + (1 - order) * math.log(other)
    return float(logsumexp(first + k * growth)) / (order - 1)


def clones(n, q, st, sv, tau, Cmax, R, order=2):
    """D_2 of one accepted update whose other n records are alike and orthogonal to the one in question (metric 1)."""
    assert order == 2
    k = np.arange(n + 1)
    k = k[binom.logpmf(k, n, q) > -200]

    def acceptance(metric):
        return norm.sf((tau - np.clip(R - metric, -Cmax, Cmax)) / sv)

    ratio = acceptance(k + 1) / acceptance(k)
    tilted = binom.pmf(k, n, q) * acceptance(k)
    tilted /= tilted.sum()
    mean_ratio = tilted @ ratio
    x = np.arange(k[0] / st - MARGIN, k[-1] / st + MARGIN, 0.1)
    density = norm.pdf(x[:, None] - k[None] / st) * tilted
    seen = density.sum(axis=1)
    local = (density @ ratio) / np.maximum(seen, 1e-300)
    second = (1 - q) ** 2 + 2 * q * (1 - q) * local + (q * local) ** 2 * math.exp(1 / st**2)
    return math.log(0.1 * seen @ second) - 2 * math.log(1 - q + q * mean_ratio)


def _number(value):
    return float(value) if isinstance(value, str) else value


def vectors():
    """Name -> (inputs, exact values, bounds): ten worlds whose exact values a second enumeration gave."""
    found = json.loads((Path(__file__).parent / "privacy_vectors.json").read_text())
    return {
        name: tuple({key: _number(value) for key, value in part.items()} for part in parts)
        for name, parts in found.items()
    }


def make_world(inputs):
    """A World from the inputs of a vector."""
    lists = {"g": np.array(inputs["g"], dtype=float), "e": np.array(inputs["e"], dtype=float)}
    return World(**(inputs | lists | {"gz": np.array(inputs["gz"], dtype=float)}))
