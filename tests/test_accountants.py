"""Epsilons against printed values, closed forms, integrals and each other."""

import math
import time
import warnings

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from dpexp.accountants import Setting, pld_epsilon, renyi_divergence
from dpexp.accounting import account
from dpexp.config import ConfigError

# q, noise multiplier, steps, delta, then RDP and PLD by dp-accounting 0.6 and PRV by Opacus 1.6. Opacus' and
# dp-accounting's RDP use other fractional orders where q >= 0.08: the tolerance there is wide.
GOLDEN = [
    (256 / 60000, 1.1, 14063, 1e-5, 2.596656, 2.381779, 2.391837, 1e-5),
    (1024 / 50000, 1.54, 1464, 1e-5, 2.608252, 2.386302, 2.396442, 1e-5),
    (0.01, 1.0, 1000, 1e-5, 2.101367, 1.828244, 1.838372, 1e-5),
    (0.01, 1.0, 100, 1e-5, 1.214145, 0.718037, 0.728134, 1e-5),
    (0.08, 1.0, 100, 1e-5, 6.345206, 5.613419, 5.623801, 2e-3),
    (0.2, 3.0, 50, 1 / 48000, 2.169042, 1.960812, 1.970953, 1e-5),
    (0.2, 1.0, 10, 1e-5, 5.756126, 4.984213, 4.994603, 2e-3),
    (0.2, 1.0, 500, 1e-5, 43.3627, 38.170248, 38.181708, 1e-1),
    (0.125, 0.8, 1000, 1e-6, 65.1534, 56.725951, 56.737689, 1e-1),
    (1.0, 10.0, 10, 1e-5, 1.308497, 1.199370, 1.209452, 1e-5),
]


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Exact epsilon of a Gaussian mechanism with sensitivity / noise_std = mu (Balle and Wang, 2018, Theorem 8)."""

    def excess(epsilon: float) -> float:
        tails = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
        return float(tails - delta)

    return float(brentq(excess, 0, 100, xtol=1e-12))


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: f"q={row[0]:.4g}-T={row[2]}")
def test_epsilons_are_the_printed_ones(row):
    q, sigma, steps, delta, rdp, pld, prv, rdp_tolerance = row
    found = account(q, sigma, steps, delta)
    assert found.epsilon_rdp == pytest.approx(rdp, rel=rdp_tolerance)
    assert found.epsilon_pld == pytest.approx(pld, abs=5e-5)
    assert found.epsilon_prv == pytest.approx(prv, abs=5e-5)
    assert found.epsilon == found.epsilon_rdp
    assert found.notes == ()
    assert max(found.epsilon_pld, found.epsilon_prv) <= found.epsilon_rdp + 1e-6


@pytest.mark.parametrize(
    ("q", "sigma", "steps", "delta", "rdp"), [(0.2, 1.0, 500, 1e-5, 40.9416), (0.125, 0.8, 1000, 1e-6, 60.3006)]
)
def test_rdp_is_opacus_own_where_its_grid_holds_the_best_order(q, sigma, steps, delta, rdp):
    assert account(q, sigma, steps, delta).epsilon_rdp == pytest.approx(rdp, abs=1e-4)


@pytest.mark.parametrize(("sigma", "steps", "printed"), [(10.0, 10, 1.1993696), (1.0, 1, 4.3771781)])
def test_full_batch_is_the_gaussian_mechanism(sigma, steps, printed):
    exact = gaussian_epsilon(math.sqrt(steps) / sigma, 1e-5)
    assert exact == pytest.approx(printed, abs=1e-6)
    found = account(1.0, sigma, steps, 1e-5, "pld")
    assert exact <= found.epsilon <= exact + 1e-4
    assert exact <= found.epsilon_prv <= exact + 0.021
    assert exact <= found.epsilon_rdp


def test_renyi_divergences_are_those_of_dp_accountings_test():
    orders = [2.5, 5, 50, 100, math.inf]
    printed = [1.08549e-3, 2.18076e-3, 2.38460e-2, 167.416, math.inf]
    assert [renyi_divergence(0.01, 2.5, 50, order) for order in orders] == pytest.approx(printed, rel=1e-4)
    # at 1.5 dp-accounting prints a looser bound, 6.7058e-4; the integral below confirms the smaller one
    assert 0.95 * 6.7058e-4 < renyi_divergence(0.01, 2.5, 50, 1.5) < 6.7058e-4


@pytest.mark.parametrize("sigma", [0.7, 2.0, 1e3])
def test_full_batch_renyi_divergence_is_its_closed_form(sigma):
    for order in (1.001, 2, 700):
        assert renyi_divergence(1.0, sigma, 7, order) == pytest.approx(7 * order / (2 * sigma**2), rel=1e-12)


@pytest.mark.parametrize(("q", "sigma", "order"), [(0.3, 0.8, 1.7), (0.01, 2.5, 1.5), (0.01, 2.5, 5), (0.5, 1.0, 1.1)])
def test_renyi_divergence_is_the_integral_that_defines_it(q, sigma, order):
    z = np.linspace(-40, 40, 400_001)
    ratio = 1 - q + q * np.exp((2 * z - 1) / (2 * sigma**2))
    integral = np.trapezoid(norm.pdf(z, scale=sigma) * ratio**order, z)
    assert renyi_divergence(q, sigma, 1, order) == pytest.approx(math.log(integral) / (order - 1), rel=1e-6)


def test_epsilon_grows_with_steps_and_rate_and_delta_shrinking_and_falls_with_noise():
    base = {"sample_rate": 0.02, "noise_multiplier": 1.5, "steps": 300, "delta": 1e-5}
    less = account(**base)
    for change in ({"sample_rate": 0.03}, {"noise_multiplier": 1.2}, {"steps": 400}, {"delta": 1e-6}):
        more = account(**base | change)
        for name in ("epsilon_rdp", "epsilon_prv", "epsilon_pld"):
            assert getattr(more, name) > getattr(less, name), (name, change)


@pytest.mark.parametrize("order", [1.5, 7.8, 20])
def test_400_and_600_steps_are_1000_steps(order):
    parts = sum(renyi_divergence(0.01, 1.0, steps, order) for steps in (400, 600))
    assert parts == pytest.approx(renyi_divergence(0.01, 1.0, 1000, order), rel=1e-12)


@pytest.mark.parametrize("accountant", ["rdp", "prv", "pld"])
def test_no_noise_costs_infinity_and_no_steps_cost_nothing(accountant):
    for steps, expected in ((10, math.inf), (0, 0.0)):
        found = account(0.01, 0.0 if steps else 1.0, steps, 1e-5, accountant)
        assert found.accountant_used == accountant
        assert {found.epsilon, found.epsilon_rdp, found.epsilon_prv, found.epsilon_pld} == {expected}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sample_rate": 1.5}, r"sample rate must be .*got 1\.5"),
        ({"sample_rate": 0.0}, r"sample rate must be .*got 0\.0"),
        ({"sample_rate": -0.1}, "sample rate"),
        ({"sample_rate": math.nan}, "sample rate"),
        ({"steps": -1}, "steps must be a whole number >= 0, got -1"),
        ({"steps": 2.5}, "steps"),
        ({"delta": 0.0}, r"dp.delta must be between 0 and 1, both excluded, got 0\.0"),
        ({"delta": 1.5}, "dp.delta"),
        ({"delta": math.nan}, "dp.delta"),
        ({"noise_multiplier": -1.0}, r"noise multiplier must be a finite number >= 0, got -1\.0"),
        ({"noise_multiplier": math.nan}, "noise multiplier"),
        ({"noise_multiplier": math.inf}, "noise multiplier"),
        ({"accountant": "gdp"}, "accountant must be one of rdp, prv, pld"),
        ({"orders": []}, r"orders must be one or more numbers > 1, got \[\]"),
        ({"orders": [1.0]}, "orders"),
        ({"orders": [0.5, 2]}, "orders"),
        ({"orders": [math.nan]}, "orders"),
    ],
)
def test_account_refuses_values_outside_their_range(change, message):
    base = {"sample_rate": 0.01, "noise_multiplier": 1.0, "steps": 10, "delta": 1e-5}
    with pytest.raises(ConfigError, match=message):
        account(**base | change)


def test_orders_can_be_chosen_and_a_narrow_grid_is_noted():
    widened = account(0.01, 1.0, 1000, 1e-5)
    narrow = account(0.01, 1.0, 1000, 1e-5, orders=[2, 3, 4])
    assert narrow.epsilon_rdp > widened.epsilon_rdp
    assert any("best order, 4, is at the end" in note for note in narrow.notes)
    assert account(0.01, 1.0, 1000, 1e-5, orders=[7, 7.8, 8]).epsilon_rdp == widened.epsilon_rdp


@pytest.mark.parametrize(("sigma", "end"), [(30.0, 63), (0.15, 1.1)])
def test_orders_widen_by_themselves_at_either_end_of_the_grid(sigma, end):
    own = [*(1 + x / 10 for x in range(1, 100)), *range(12, 64)]
    fixed, widened = (account(500 / 60000, sigma, 3600, 1e-5, orders=orders) for orders in (own, None))
    assert any(f"best order, {end:g}," in note for note in fixed.notes)
    assert widened.epsilon_pld <= widened.epsilon_rdp < 0.95 * fixed.epsilon_rdp


def test_a_tiny_delta_is_accounted_by_rdp_without_an_exception():
    found = account(0.00033, 4.0, 10000, 1.13e-18, "prv")
    assert found.epsilon == found.epsilon_rdp == pytest.approx(0.1457, abs=1e-3)
    assert (found.epsilon_prv, found.epsilon_pld, found.accountant_used) == (None, None, "rdp")
    assert [note[:10] for note in found.notes] == ["prv failed", "pld failed"]


def test_prv_is_refused_where_doubles_would_understate_it():
    assert account(0.1, 0.02, 1, 1e-5).epsilon_pld > 1400
    found = account(0.1, 0.02, 1, 1e-5, "prv")  # Opacus answers 707.49 here
    assert found.epsilon_prv is None
    assert found.epsilon == found.epsilon_rdp > found.epsilon_pld
    tiny = account(0.01, 1.0, 1000, 1e-12)  # Opacus' 3.913 is below PLD's 3.916
    assert tiny.epsilon_prv is None
    assert "rounding" in tiny.notes[0]


def test_a_true_epsilon_of_zero_is_no_error():
    q, delta = 0.00105, 1e-3
    total_variation = q * (2 * norm.cdf(0.5) - 1)
    assert total_variation < delta
    found = account(q, 1.0, 1, delta)
    assert found.epsilon_pld == 0
    assert found.epsilon_prv == pytest.approx(0.009, abs=1e-3)
    assert found.epsilon_rdp == pytest.approx(0.2548, abs=1e-4)


def test_rdp_is_never_negative():
    assert account(1e-5, 50.0, 1, 0.9).epsilon_rdp == 0
    assert renyi_divergence(1.91e-5, 82.2, 1, 1.4) >= 0


@pytest.mark.parametrize("sigma", [1e-170, 1e-160, 1e-154, 1e-5, 1e6])
def test_extreme_noise_neither_warns_nor_hangs_nor_fails(sigma):
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = account(0.1, sigma, 100, 1e-5, "prv")
    assert found.epsilon == (found.epsilon_rdp if found.epsilon_prv is None else found.epsilon_prv)
    assert time.perf_counter() - start < 20


def test_wider_bins_of_pld_overstate_only(monkeypatch):
    setting = Setting(sample_rate=0.01, noise_multiplier=0.9, steps=500, delta=1e-5)
    fine = pld_epsilon(setting, 2.0)
    monkeypatch.setattr("dpexp.accountants.PLD_BINS", 5000)
    coarse = pld_epsilon(setting, 2.0)
    assert fine < coarse < fine + 0.01
