"""What a run may do for its budget, and every account of what it did: from the constants of its mechanism alone."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.stats import nbinom

from dpexp.accountants import composed_pld_epsilon
from dpexp.algorithms.dpsr_cg import Test
from dpexp.algorithms.dpsur import LossTest
from dpexp.selective import renyi, theorems
from dpexp.selective.theorems import Acceptance

CAP_FAILURE = 1e-6  # probability, in the worst case, with which a run reaches its last allowed trial
PLD_LIMIT = 50.0  # epsilon by RDP from which on the grid of PLD would take gigabytes, and nobody would gain by it
HOPELESS = 1e-12  # an acceptance probability for which no number of trials is enough in practice


def acceptance(test: Test) -> Acceptance:
    """How DPSR-CG's acceptance depends on one record. Only the same-batch metric may move either way."""
    return Acceptance(
        threshold=test.threshold,
        clip_range=test.clip_range,
        std=test.std,
        sensitivity=test.metric_bound,
        signed=test.reference == "same_batch",
    )


@dataclass(frozen=True, kw_only=True)
class Release:
    """Everything that the accounts of a run depend on.

    sample_rate, noise_multiplier: of every trial's gradient sum. published: follows the published code, whose rejected
    updates leave traces. coded_sensitivity: largest norm of a scaled gradient over the clip norm (1 unless published).
    test, loss_test: of DPSR-CG, of DPSUR; validation_rate, validation_noise: DPSUR's. statistics_noise: noise
    multiplier of noisy channel statistics, None without them.
    """

    published: bool
    sample_rate: float
    noise_multiplier: float
    coded_sensitivity: float
    test: Test | None
    loss_test: LossTest | None
    validation_rate: float
    validation_noise: float
    statistics_noise: float | None
    delta: float

    @property
    def acceptance(self) -> Acceptance:
        """How DPSR-CG's acceptance depends on one record."""
        assert self.test is not None
        return acceptance(self.test)

    @property
    def loss_acceptance(self) -> Acceptance:
        """DPSUR's acceptance as if of -loss: one record may move the clipped difference through its whole range."""
        test = self.loss_test
        assert test is not None
        return Acceptance(
            threshold=-test.threshold,
            clip_range=test.loss_bound,
            std=test.std,
            sensitivity=2 * test.loss_bound,
            signed=True,
        )

    @property
    def loss_inflation(self) -> float:
        """rho of paper S for DPSUR: its largest acceptance probability over its smallest (Table 1)."""
        return self.loss_acceptance.inflation

    @property
    def smallest_acceptance(self) -> float:
        """The probability with which a trial is accepted in the worst case."""
        if self.test is not None:
            return self.acceptance.smallest
        return self.loss_acceptance.smallest if self.loss_test is not None else 1.0

    @property
    def fixed(self) -> np.ndarray:
        """Renyi divergence of what is released once."""
        return renyi.statistics(self.statistics_noise)

    def joint(self, *others: float) -> float:
        """Noise multiplier of the gradient released together with Gaussians of other noise multipliers."""
        return sum(s**-2 if s else math.inf for s in (self.noise_multiplier, *others)) ** -0.5

    @property
    def reference_multiplier(self) -> float:
        """Noise multiplier of the published reference; infinity where none is published."""
        assert self.test is not None
        return self.test.reference_std / self.test.metric_bound if self.test.reference == "noisy" else math.inf


def paper_once(release: Release) -> np.ndarray:
    """One accepted update as paper S charges it: the sampled Gaussian at rate q * rho, nothing for the test.

    DPSUR re-accounted: its training batch at q * rho, its validation at its own rate. DPSUR as published: both at
    their own rates. Everything else: the sampled Gaussian.
    """
    rate = release.sample_rate
    if release.test is not None:
        rate = min(1.0, rate * release.acceptance.inflation)
    if release.loss_test is None:
        return renyi.sampled_gaussian(rate, release.noise_multiplier)
    rate = rate if release.published else min(1.0, rate * release.loss_inflation)
    validation = renyi.sampled_gaussian(release.validation_rate, release.validation_noise)
    return renyi.sampled_gaussian(rate, release.noise_multiplier) + validation


def naive_once(release: Release) -> np.ndarray:
    """One accepted update at the rate that is sampled, as if rejecting cost nothing."""
    return renyi.sampled_gaussian(release.sample_rate, release.noise_multiplier)


@lru_cache(maxsize=64)
def _theorem_a(sample_rate: float, sigma: float, ratios: tuple[float, float]) -> tuple[float, ...]:
    return tuple(max(theorems.bound_a(order, sample_rate, sigma, ratios)) for order in renyi.ORDERS)


def a_once(release: Release) -> np.ndarray:
    """Theorem A at every order."""
    sigma = release.joint(release.reference_multiplier)
    return np.array(_theorem_a(release.sample_rate, sigma, release.acceptance.ratios))


@lru_cache(maxsize=64)
def _counts(sample_rate: float, test: theorems.Acceptance) -> tuple[float, ...]:
    return tuple(theorems.counts(order, sample_rate, test) for order in renyi.ORDERS)


def b_once(release: Release) -> np.ndarray:
    """Theorem B at every order."""
    return a_once(release) + np.array(_counts(release.sample_rate, release.acceptance))


def trial_parts(release: Release) -> list[tuple[float, float]]:
    """(sample rate, noise multiplier) of the Gaussians that one trial amounts to if everything of it is released."""
    if release.loss_test is not None:
        validation = release.validation_rate, release.validation_noise
        return [(release.sample_rate, release.noise_multiplier), validation]
    if release.test is None:
        return [(release.sample_rate, release.noise_multiplier)]
    test = release.test.std / release.acceptance.moved
    return [(release.sample_rate, release.joint(test, release.reference_multiplier))]


def c_once(release: Release) -> np.ndarray:
    """One trial with everything released, at every order."""
    return sum((renyi.sampled_gaussian(*part) for part in trial_parts(release)), np.zeros(len(renyi.ORDERS)))


def c_pld(release: Release, trials: int) -> float:
    """Account C by PLD: every one of `trials` trials, and what is released once; by RDP beyond PLD_LIMIT."""
    once = [(1.0, release.statistics_noise, 2)] if release.statistics_noise else []
    parts = [*((*part, trials) for part in trial_parts(release)), *once]
    by_rdp = renyi.epsilon(release.fixed + trials * c_once(release), release.delta)
    return composed_pld_epsilon(parts, release.delta) if by_rdp < PLD_LIMIT else by_rdp


def cap(release: Release, updates: int) -> int:
    """So many trials that fewer than `updates` of them are accepted with probability below CAP_FAILURE at worst.

    0 where no number suffices, because a trial may be accepted with probability 0, or hardly more.
    """
    worst = release.smallest_acceptance
    if worst == 1:
        return updates
    return updates + int(nbinom.isf(_cap_failure(release), updates, worst)) if worst > HOPELESS else 0


def _cap_failure(release: Release) -> float:
    """The probability of meeting the cap that `cap` allows: well below delta, from which account A pays for it."""
    return min(CAP_FAILURE, release.delta / 4)


def cap_failure(release: Release, updates: int, trials: int) -> float:
    """The probability, at worst, that `trials` trials do not give `updates` accepted ones."""
    worst = release.smallest_acceptance
    if worst == 1:
        return 0.0 if trials >= updates else 1.0
    return float(nbinom.sf(trials - updates, updates, worst)) if worst > HOPELESS else 1.0


def budget(release: Release, by: str, target: float) -> tuple[int, int]:
    """(accepted updates, trials) that a target epsilon allows by the account `by`; 0 updates where it allows none.

    C stops by trials: it allows as many updates as trials. Trials of 0: no number is enough in the worst case.
    """
    if by == "C":
        trials = renyi.largest_count(c_once(release), release.fixed, target, release.delta)
        return trials, trials
    once = {"paper": paper_once, "A": a_once, "B": b_once}[by] if release.test else paper_once
    if by == "A" and release.test:  # the cap of trials is paid for inside the budget
        failure = _cap_failure(release)
        updates = renyi.largest_count(
            once(release), release.fixed, target + math.log1p(-failure), release.delta - failure
        )
    else:
        updates = renyi.largest_count(once(release), release.fixed, target, release.delta)
    return updates, cap(release, updates) if updates else 0
