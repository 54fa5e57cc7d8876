"""The releases of the two papers: constants of their mechanisms, for tests of what they cost."""

import math
from functools import lru_cache

from dpexp.algorithms.dpsr_cg import Test
from dpexp.algorithms.dpsur import LossTest
from dpexp.selective.accounts import Ran, accounts
from dpexp.selective.ledger import Release

N = {"mnist": 60_000, "fashion_mnist": 60_000, "cifar10": 50_000, "imdb": 25_000}
SIGMA = {  # DPSR-CG's, by target epsilon
    "mnist": (2.5, 1.5, 1.35),
    "fashion_mnist": (4.0, 3.0, 2.15),
    "cifar10": (5.67, 3.5, 3.5),
    "imdb": (2.5, 1.8, 1.35),
}
BATCH = {"mnist": 1024, "fashion_mnist": 2048, "cifar10": 2048, "imdb": 1024}
SCALING_BOUND = {"mnist": 8.0, "fashion_mnist": 6.0, "cifar10": 3.0, "imdb": 1.0}
BN = {"mnist": 8.0, "fashion_mnist": None, "cifar10": 8.0, "imdb": None}
LOSS_NOISE = {
    "mnist": (1.3, 1.0, 0.9),
    "fashion_mnist": (1.3, 1.3, 0.8),
    "cifar10": (1.3, 1.3, 1.1),
    "imdb": (1.3, 1.2, 1.0),
}


def make_release(**changes):
    """Plain DP-SGD on MNIST."""
    values = dict(
        published=False,
        sample_rate=1024 / 60_000,
        noise_multiplier=2.0,
        coded_sensitivity=1.0,
        test=None,
        loss_test=None,
        validation_rate=0.0,
        validation_noise=0.0,
        statistics_noise=None,
        delta=1e-5,
    )
    return Release(**(values | changes))


def make_test(sigma, **changes):
    values = dict(
        scaling_bound=8.0,
        saturation=11.0,
        metric_bound=1.0,
        clip_range=2.0,
        threshold=3.0,
        std=4 * sigma,
        reference="noisy",
        reference_std=max(20.0, 5 * sigma),
    )
    return Test(**(values | changes))


def dpsr_cg(data="mnist", target=1, test_changes=None, **changes):
    """DPSR-CG as paper S plans it, without the cost of statistics."""
    sigma = SIGMA[data][target - 1]
    test = make_test(sigma, **(test_changes or {}))
    draft = make_release(noise_multiplier=sigma, test=test)
    batch = math.floor(BATCH[data] / draft.acceptance.inflation)
    return make_release(**(dict(noise_multiplier=sigma, test=test, sample_rate=batch / N[data]) | changes))


def as_published(data, target, **changes):
    """DPSR-CG as its code has it."""
    return dpsr_cg(
        data,
        target,
        dict(reference="raw", reference_std=0.0),
        **(dict(published=True, coded_sensitivity=SCALING_BOUND[data], statistics_noise=BN[data]) | changes),
    )


def dpsur(sigma=2.0, sigma_v=1.3, validation=256, n=60_000, batch=1024, stored=False, **changes):
    """DPSUR, with its published constants."""
    test = LossTest(
        validation_batch=validation, loss_bound=1e-3, threshold=-1e-3, std=2e-3 * sigma_v, stored_loss=stored
    )
    values = dict(
        published=stored,
        noise_multiplier=sigma,
        sample_rate=batch / n,
        loss_test=test,
        validation_rate=validation / n,
        validation_noise=sigma_v,
    )
    return make_release(**(values | changes))


def make_ran(release, updates=100, trials_allowed=400, accepted=None, trials=300):
    return Ran(
        release=release,
        updates=updates,
        trials_allowed=trials_allowed,
        accepted=updates if accepted is None else accepted,
        trials=trials,
    )


@lru_cache(maxsize=64)
def rows(ran):
    return {row.name: row for row in accounts(ran)}
