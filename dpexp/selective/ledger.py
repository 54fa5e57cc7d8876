"""What a run may cost and what it did cost: the budget before it, and every account after it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import nbinom, norm

from dpexp.algorithms.dpsr_cg import Test
from dpexp.algorithms.dpsur import LossTest
from dpexp.config import ConfigError
from dpexp.selective.budget import ORDERS, largest, sgm


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Everything that the accounts of a run depend on, before it has run."""

    method: str
    variant: str
    sample_rate: float
    noise_multiplier: float
    test: Test | None
    loss_test: LossTest | None
    validation_rate: float
    validation_noise: float
    statistics_noise: float | None
    delta: float


def metric_inflation(test: Test) -> float:
    """rho of paper S: by how much a record may change the acceptance probability, at the upper end of the gap."""
    if math.isinf(test.threshold) or test.std == 0:
        return 1.0
    top, moved = test.threshold + test.clip_range, min(test.metric_bound, 2 * test.clip_range)
    return float(norm.sf((top - moved) / test.std) / norm.sf(top / test.std))


def loss_inflation(test: LossTest) -> float:
    """rho of paper S for DPSUR: the largest acceptance probability over the smallest."""
    low, high = (norm.cdf((test.threshold + sign * test.loss_bound) / test.std) for sign in (-1, 1))
    return float(high / low)


def smallest_acceptance(cost: Cost) -> float:
    """The probability with which a trial is accepted in the worst case."""
    if cost.test is not None:
        return float(norm.sf((cost.test.threshold + cost.test.clip_range) / cost.test.std))
    if cost.loss_test is not None:
        return float(norm.cdf((cost.loss_test.threshold - cost.loss_test.loss_bound) / cost.loss_test.std))
    return 1.0


def budget(cost: Cost, by: str, target: float) -> tuple[int, int]:
    rate = cost.sample_rate
    if cost.test is not None:
        rate *= metric_inflation(cost.test)
    elif cost.loss_test is not None and cost.variant != "as_published":
        rate = min(1.0, rate * loss_inflation(cost.loss_test))
    step = sgm(rate, cost.noise_multiplier)
    if cost.loss_test is not None:
        step = step + sgm(cost.validation_rate, cost.validation_noise)
    fixed = np.array(ORDERS) / cost.statistics_noise**2 if cost.statistics_noise else 0 * np.array(ORDERS)
    steps = largest(step, fixed, target, cost.delta)
    if not steps:
        raise ConfigError(f"dp.target_epsilon={target:g} allows no update of {cost.method}")
    worst = smallest_acceptance(cost)
    return steps, steps if worst == 1 else steps + int(nbinom.isf(1e-6, steps, worst))


def accounts(run, trials, accepted):
    return ()
