"""Risk of Algorithm 1 against phi under heavy-tailed Lipschitz constants (paper L, Section 6, Table 2).

The theorems' regimes begin where no step-by-step simulation reaches: for k = 1.5 the bound of Theorem 6.2
falls below the initial risk of the problem here only at phi = 2e-6, that is 2e11 steps. On one dimension with
few distinct minimisers the clipped mean gradient is constant over long stretches, so that many steps are one:
a merged step carries the drift and the Gaussian noise of many, exactly so between two kinks, and to first
order in the curvature for the smooth losses. Batches are full (b = n), which the theorems allow.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dpexp.theory import HeavyTail, Setting, exponent, learning_rate

TAIL_ORDERS = (1.5, 2.0, 4.0, math.inf)
THEOREMS = (
    "6.2",
    "6.5",
    "6.8",
    "constant",
)  # the last: a clip norm of G whatever phi, which no theorem covers
BOUND_OVER_INITIAL = tuple(np.geomspace(1.0, 0.06, 7))  # phi is chosen where the bound is this part of f(w_0) - f*
TAIL_INDEX = 1.1  # Pareto index as a multiple of k, so that the k-th moment is finite and little beyond it
CENTRES, SHARES = np.array([-1.0, 0.0, 1.0]), (0.2, 0.6, 0.2)  # minimisers of the f_i: no interpolation
START = 2.0
SAMPLES, REPETITIONS = 5_000, 8
TABLE = 257  # gradient sizes at which the clipped mean is tabulated; linear in between


def slope(x: np.ndarray, smooth: bool) -> np.ndarray:
    """Derivative of |x|, or of ln(1 + x^2) if `smooth`; both are at most 1 in size."""
    return 2 * x / (1 + x**2) if smooth else np.sign(x)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A data set: f_i(w) = G_i * |w - c_i|, or G_i * ln(1 + (w - c_i)^2) if `smooth`, which is not convex.

    lipschitz: G_i, [n]. centre: which of CENTRES is c_i, [n].
    """

    lipschitz: np.ndarray
    centre: np.ndarray
    smooth: bool

    def masses(self, clip_norm: float = math.inf) -> np.ndarray:
        """Mean over the data of min(G_i * r, clip_norm) at each centre, for r in 0..1, [m, TABLE]."""
        r = np.linspace(0, 1, TABLE)
        groups = [self.lipschitz[self.centre == j] for j in range(CENTRES.size)]
        return np.stack([np.minimum(np.outer(r, g), clip_norm).sum(1) for g in groups]) / self.centre.size

    @cached_property
    def mass(self) -> np.ndarray:
        """Sum of the G_i at each centre over n, [m]; their sum is the mean Lipschitz constant."""
        return self.masses()[:, -1]

    def objective(self, w: np.ndarray) -> np.ndarray:
        """f(w) for points w [...]."""
        x = w[..., None] - CENTRES
        return (np.log1p(x**2) if self.smooth else np.abs(x)) @ self.mass

    @cached_property
    def minimiser(self) -> float:
        """w*: a centre if convex; to a grid of 1e-3 if not."""
        candidates = np.linspace(-1, 1, 2001) if self.smooth else CENTRES
        return float(candidates[self.objective(candidates).argmin()])

    @cached_property
    def gap(self) -> float:
        """f(w_0) - min f."""
        return float(self.objective(np.array(START)) - self.objective(np.array(self.minimiser)))

    def risk(self, w: np.ndarray) -> np.ndarray:
        """Optimisation risk of points w [...] (Definition 3.5): f(w) - f*; not convex: squared gradient."""
        if self.smooth:
            return (slope(w[..., None] - CENTRES, True) @ self.mass) ** 2
        return self.objective(w) - self.objective(np.array(self.minimiser))

    def sharp_radius(self, least_slope: float) -> float:
        """D of Assumption 6.4: beyond it f - f* exceeds least_slope * |w - w*|; infinite if it never does.

        The quotient grows with the distance, because f is convex, so that the first grid point that does will
        do.
        """
        distances = np.concatenate([[1e-6], np.geomspace(1e-3, 1e4, 300)])
        sides = np.stack([self.risk(self.minimiser + side * distances) for side in (-1, 1)])
        sharp = (sides > least_slope * distances).all(0)
        return float(distances[sharp.argmax()]) if sharp.any() else math.inf


def draw(k: float, seed: int, smooth: bool) -> Sample:
    """SAMPLES losses with Pareto(1.1 k) Lipschitz constants, P(G_i > x) = x^(-1.1 k); 1 if k is infinite."""
    generator = np.random.default_rng(seed)
    centre = generator.choice(CENTRES.size, size=SAMPLES, p=SHARES)
    lipschitz = (1 - generator.random(SAMPLES)) ** (-1 / (TAIL_INDEX * k))
    return Sample(lipschitz=lipschitz, centre=centre, smooth=smooth)


def moment_constant(k: float) -> float:
    """G = E[G_i^k]^(1/k) of the Pareto law: (index / (index - k))^(1/k)."""
    return (TAIL_INDEX / (TAIL_INDEX - 1)) ** (1 / k)


def prescribe(theorem: str, k: float, phi: float, sample: Sample) -> Setting:
    """Clip norm, learning rate, steps and bound of a theorem, with the C that makes its bound least.

    Under Assumption 6.4 that does not hold for this sample and phi the bound of Theorem 6.5 is infinite.
    """
    distance, G = START - sample.minimiser, moment_constant(k)
    if theorem == "6.2":
        return HeavyTail(k=k, G=G, phi=phi, C=distance / 2, distance=distance).convex()
    if theorem == "6.8":
        C = math.sqrt(2 * sample.gap / 3)
        smoothness = 2 * float(sample.mass.sum())
        return HeavyTail(k=k, G=G, phi=phi, C=C, distance=distance).nonconvex(smoothness, sample.gap)
    tail = HeavyTail(k=k, G=G, phi=phi, C=distance / math.sqrt(2), distance=distance)
    if theorem == "6.5":
        return tail.convex_sharp(sample.sharp_radius(16 * phi ** (1 - 1 / k) * G))
    assert theorem == "constant"
    rate = learning_rate(tail.C, G, phi, tail.steps)
    return Setting(clip_norm=G, learning_rate=rate, steps=tail.steps, bound=math.inf)


def merged(theorem: str, setting: Setting, phi: float, sample: Sample) -> int:
    """How many merged steps stand for the theorem's T; never more than T.

    Convex: a merged step's noise is at most half the width, lr * tau^2 / (2 * slope), to which noise and
    drift settle at a kink. Smooth: a merged step moves by at most 1/20 of the inverse curvature.
    """
    total = float(sample.mass.sum())
    if sample.smooth:
        wanted = 20 * setting.steps * setting.learning_rate * 2 * total
    else:
        wanted = (4 * total / (setting.clip_norm * phi)) ** 2
    return min(setting.steps, math.ceil(wanted))


def simulate(samples: Sequence[Sample], settings: Sequence[Setting], phi: float, leaps: int, seed: int) -> np.ndarray:
    """Optimisation risk of Algorithm 1 on each sample, mean over iterates and REPETITIONS runs, [samples].

    `leaps` merged steps stand for settings[j].steps, which all must agree; leaps = steps is Algorithm 1
    itself.
    """
    generator = np.random.default_rng(seed)
    smooth, steps = samples[0].smooth, settings[0].steps
    rows = zip(samples, settings, strict=True)
    clipped = np.stack([sample.masses(setting.clip_norm) for sample, setting in rows])
    mass = np.stack([sample.mass for sample in samples])[:, :, None]
    drift = np.array([[s.learning_rate] for s in settings]) * (steps / leaps)
    noise = np.array([[s.learning_rate * s.clip_norm] for s in settings]) * phi * steps / math.sqrt(leaps)
    which = np.arange(len(samples))[:, None, None], np.arange(CENTRES.size)
    w, total = np.full((len(samples), REPETITIONS), START), np.zeros((len(samples), REPETITIONS))
    for _ in range(leaps):
        x = w[..., None] - CENTRES
        direction = slope(x, smooth)
        if smooth:
            total += (direction @ mass)[..., 0] ** 2
            place = np.abs(direction) * (TABLE - 1)
            index = np.minimum(place.astype(int), TABLE - 2)
            low, high = clipped[(*which, index)], clipped[(*which, index + 1)]
            gradient = (np.sign(x) * (low + (place - index) * (high - low))).sum(-1)
        else:
            total += (np.abs(x) @ mass)[..., 0]
            gradient = (direction @ clipped[:, :, -1:])[..., 0]
        w = w - drift * gradient - noise * generator.standard_normal(w.shape)
    least = 0.0 if smooth else np.array([s.objective(np.array(s.minimiser)) for s in samples])
    return total.mean(1) / leaps - least


def phi_where(bound: Callable[[float], float], target: float) -> float:
    """The phi in (1e-30, 0.5] at which an increasing bound is `target`, by bisection."""
    low, high = math.log(1e-30), math.log(0.5)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if bound(math.exp(middle)) < target else (low, middle)
    return math.exp(high)


def risk_against_phi(seeds: Sequence[int]) -> list[dict[str, Any]]:
    """One record per (theorem, k, phi, data set): the measured risk beside the bound. Seeds are data sets."""
    records = []
    for theorem in THEOREMS:
        for k in TAIL_ORDERS:
            samples = [draw(k, seed, smooth=theorem == "6.8") for seed in seeds]
            for phi in _phi_grid(theorem, k, samples[0]):
                records += _measure(theorem, k, phi, samples, seeds)
    return records


def _phi_grid(theorem: str, k: float, sample: Sample) -> list[float]:
    """Values of phi at which the leading part of the bound is BOUND_OVER_INITIAL of the initial risk."""
    initial = float(sample.risk(np.array(START)))

    def bound(phi: float) -> float:
        if theorem in ("6.2", "6.8"):
            return prescribe(theorem, k, phi, sample).bound
        tail = HeavyTail(k=k, G=moment_constant(k), phi=phi, C=math.sqrt(2), distance=START)
        rate = 1 - 1 / k if theorem == "6.5" else 1.0
        return tail.G * 2 ** (1.5 + rate / 2) * START * phi**rate

    return [phi_where(bound, part * initial) for part in BOUND_OVER_INITIAL]


def _measure(
    theorem: str, k: float, phi: float, samples: Sequence[Sample], seeds: Sequence[int]
) -> list[dict[str, Any]]:
    """The records of one point."""
    settings = [prescribe(theorem, k, phi, sample) for sample in samples]
    leaps = max(merged(theorem, s, phi, sample) for s, sample in zip(settings, samples, strict=True))
    risks = simulate(samples, settings, phi, leaps, seed=seeds[0])
    return [
        {
            "study": "heavy_tails",
            "theorem": theorem,
            "k": "inf" if math.isinf(k) else k,
            "exponent": None if theorem == "constant" else exponent(theorem, k),
            "phi": phi,
            "steps": float(setting.steps),
            "merged_steps": leaps,
            "clip_norm": setting.clip_norm,
            "learning_rate": setting.learning_rate,
            "clipped_fraction": float((sample.lipschitz > setting.clip_norm).mean()),
            "seed": seed,
            "n": SAMPLES,
            "initial_risk": float(sample.risk(np.array(START))),
            "bound": setting.bound if math.isfinite(setting.bound) else None,
            "risk": float(risk),
        }
        for seed, sample, setting, risk in zip(seeds, samples, settings, risks, strict=True)
    ]
