"""Algorithm 1 of paper L on convex problems with known constants, beside the bound of Theorem 5.4."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpexp.theory import AbsoluteLosses, alpha, best_constant, convex_steps, learning_rate, risk_bound

CONFLICTS = {"interpolation": 0.0, "slight conflict": 0.02, "conflict": 1.0}
PHI = 0.01  # 3,334 steps
C_FACTORS = tuple(2.0**j for j in range(-2, 5))  # multiples of the C that minimises the bound


def convex_problem(conflict: float, n: int = 40, large: int = 6) -> AbsoluteLosses:
    """n absolute losses in the plane; `large` of them have constants of 10 to 20, the others of 1 to 2.

    The large ones all have their zero line through (2, 2), the others `conflict` to the left: 0 is
    interpolation.
    """
    G = np.concatenate([np.linspace(1, 2, n - large), np.linspace(10, 20, large)])
    angles = np.random.default_rng(0).permutation(n) * np.pi / n
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    centres = np.where(G[:, None] < 5, [2.0 - conflict, 2.0], [2.0, 2.0])
    return AbsoluteLosses(lipschitz=G, directions=directions, offsets=(directions * centres).sum(1))


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """One run of Algorithm 1 per entry: clip_norm [k] and learning_rate [k] at one phi."""

    clip_norm: np.ndarray
    learning_rate: np.ndarray
    phi: float
    steps: int
    batch_size: int


def dp_sgd_risk(losses: AbsoluteLosses, start: np.ndarray, schedule: Schedule, seed: int) -> np.ndarray:
    """Algorithm 1 without projection: E over the returned iterate of f(w) - f(w*), for each run, [k].

    The paper returns w_t for a uniform random t < T; its expectation over t is the mean over the iterates,
    which is what is returned here. All runs of a seed see the same batches and the same unit noise, so that
    they differ by clip norm and learning rate only.
    """
    generator = np.random.default_rng(seed)
    n, d = losses.directions.shape
    weights = np.minimum(losses.lipschitz, schedule.clip_norm[:, None])  # norms of the clipped gradients, [k, n]
    noise_std = (schedule.clip_norm * schedule.phi * math.sqrt(schedule.steps / d))[:, None]
    w = np.tile(start, (schedule.clip_norm.size, 1))
    total = np.zeros(schedule.clip_norm.size)
    for _ in range(schedule.steps):
        residuals = losses.residuals(w)
        total += np.abs(residuals) @ losses.lipschitz / n
        batch = generator.random(n) < schedule.batch_size / n
        clipped_sum = (batch * weights * np.sign(residuals)) @ losses.directions
        noisy = clipped_sum / schedule.batch_size + noise_std * generator.standard_normal(d)
        w = w - schedule.learning_rate[:, None] * noisy
    return total / schedule.steps - losses.interpolation_gap


def risk_against_clip_norm(seeds: Sequence[int], phi: float = PHI, batch_size: int = 20) -> list[dict[str, Any]]:
    """Measured risk and both terms of Theorem 5.4 for each problem, clip norm and constant C.

    One record per (problem, clip norm, C): mean and standard error of the risk over the seeds. `prescribed`
    marks the C that minimises the bound; the other values of C show what tuning the learning rate would find.
    """
    records = []
    for name, conflict in CONFLICTS.items():
        losses, start = convex_problem(conflict), np.zeros(2)
        schedule, factors = _all_schedules(losses, start, phi, batch_size)
        risks = np.stack([dp_sgd_risk(losses, start, schedule, seed) for seed in seeds])
        means, errors = risks.mean(0), risks.std(0, ddof=1) / math.sqrt(len(seeds))
        common = _describe(losses, start, schedule) | {"problem": name, "conflict": conflict}
        for j, factor in enumerate(factors):
            measured = {"risk": float(means[j]), "risk_standard_error": float(errors[j]), "seeds": len(seeds)}
            records.append(common | _predict(losses, start, schedule, j, factor) | measured)
    return records


def _all_schedules(
    losses: AbsoluteLosses, start: np.ndarray, phi: float, batch_size: int
) -> tuple[Schedule, np.ndarray]:
    """Every clip norm with every C, and the factor of C of each."""
    steps, C = convex_steps(phi), best_constant(losses.distance(start))
    taus, factors = (a.ravel() for a in np.meshgrid(_clip_norm_grid(losses), C_FACTORS, indexing="ij"))
    rates = np.array([learning_rate(C * f, t, phi, steps) for t, f in zip(taus, factors, strict=True)])
    schedule = Schedule(clip_norm=taus, learning_rate=rates, phi=phi, steps=steps, batch_size=batch_size)
    return schedule, factors


def _describe(losses: AbsoluteLosses, start: np.ndarray, schedule: Schedule) -> dict[str, Any]:
    """What all records of a problem share."""
    return {
        "study": "risk_bound",
        "n": losses.lipschitz.size,
        "d": 2,
        "phi": schedule.phi,
        "steps": schedule.steps,
        "batch_size": schedule.batch_size,
        "smallest_lipschitz": float(losses.lipschitz[0]),
        "largest_lipschitz": float(losses.lipschitz[-1]),
        "interpolation_gap": losses.interpolation_gap,
        "initial_risk": float(losses.risk(start)) - losses.interpolation_gap,
    }


def _predict(losses: AbsoluteLosses, start: np.ndarray, schedule: Schedule, j: int, factor: float) -> dict[str, Any]:
    """Setting and bound of the j-th schedule."""
    tau, C = float(schedule.clip_norm[j]), best_constant(losses.distance(start)) * float(factor)
    bound = risk_bound(losses, tau, schedule.phi, start, C)
    return {
        "clip_norm": tau,
        "C": C,
        "prescribed": bool(factor == 1.0),
        "learning_rate": float(schedule.learning_rate[j]),
        "alpha": alpha(losses, tau),
        "term_a": bound.term_a,
        "term_b": bound.term_b,
    }


def _clip_norm_grid(losses: AbsoluteLosses) -> np.ndarray:
    """From well below G_1 to 1.3 G_n, holding both exactly."""
    smallest, largest = losses.lipschitz[[0, -1]]
    return np.unique(np.concatenate([np.geomspace(smallest / 8, 1.3 * largest, 22), [smallest, largest]]))
