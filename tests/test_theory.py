"""alpha(tau), Theorem 5.4 and the settings of Section 6 against definitions, closed forms and limits."""

import math

import numpy as np
import pytest

from dpexp.theory import (
    AbsoluteLosses,
    HeavyTail,
    alpha,
    best_constant,
    convex_steps,
    exponent,
    learning_rate,
    risk_bound,
)

ORIGIN = np.zeros(2)


def _losses(seed: int, interpolating: bool, n: int = 15) -> AbsoluteLosses:
    generator = np.random.default_rng(seed)
    angles = generator.uniform(0, np.pi, n)
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    offsets = directions @ np.array([1.0, -2.0]) + (0 if interpolating else generator.normal(size=n))
    lipschitz = np.sort(generator.pareto(1.5, n) + 0.5)
    return AbsoluteLosses(lipschitz=lipschitz, directions=directions, offsets=offsets)


PROBLEMS = [_losses(seed, interpolating) for seed in range(4) for interpolating in (True, False)]


def _clip_norms(losses: AbsoluteLosses) -> np.ndarray:
    smallest, largest = losses.lipschitz[[0, -1]]
    return np.unique(np.concatenate([np.geomspace(smallest / 10, largest, 40), losses.lipschitz]))


def _ratio(losses: AbsoluteLosses, clip_norm: float, w: np.ndarray) -> np.ndarray:
    """The quotient of Definition 5.3, as printed."""
    excess = np.abs(losses.residuals(w)) * losses.lipschitz
    G = losses.lipschitz
    return (np.minimum(1 / clip_norm, 1 / G) * excess).mean(-1) / (excess / G[-1]).mean(-1)


@pytest.mark.parametrize("losses", PROBLEMS)
def test_property_1_alpha_is_at_least_one_and_one_at_the_largest_constant(losses: AbsoluteLosses) -> None:
    assert all(alpha(losses, tau) >= 1 - 1e-12 for tau in _clip_norms(losses))
    assert alpha(losses, losses.lipschitz[-1]) == pytest.approx(1)


@pytest.mark.parametrize("losses", PROBLEMS)
def test_property_2_alpha_does_not_increase_with_the_clip_norm(losses: AbsoluteLosses) -> None:
    values = [alpha(losses, tau) for tau in _clip_norms(losses)]
    assert (np.diff(values) <= 1e-12).all()


@pytest.mark.parametrize("losses", PROBLEMS)
def test_property_3_alpha_is_constant_up_to_the_smallest_constant(losses: AbsoluteLosses) -> None:
    smallest = losses.lipschitz[0]
    assert {round(alpha(losses, smallest * part), 12) for part in (1e-3, 0.5, 1)} == {
        round(alpha(losses, smallest), 12)
    }


@pytest.mark.parametrize("losses", PROBLEMS)
def test_property_4_alpha_exceeds_one_where_no_point_spares_all_but_the_last_sample(
    losses: AbsoluteLosses,
) -> None:
    assert alpha(losses, losses.lipschitz[0]) > 1


def test_property_4_alpha_is_one_where_only_the_last_sample_can_be_missed() -> None:
    directions = np.tile([1.0, 0.0], (6, 1))
    directions[-1] = [0.0, 1.0]  # moving along the second axis costs the last sample alone
    losses = AbsoluteLosses(lipschitz=np.arange(1.0, 7.0), directions=directions, offsets=np.zeros(6))
    assert alpha(losses, 1.0) == 1
    spared = AbsoluteLosses(lipschitz=np.arange(1.0, 7.0), directions=directions[::-1], offsets=np.zeros(6))
    assert alpha(spared, 1.0) > 1


def test_property_4_makes_alpha_one_where_there_are_as_many_parameters_as_samples() -> None:
    directions = np.array([[1.0, 0.0], [0.6, 0.8]])
    losses = AbsoluteLosses(lipschitz=np.array([1.0, 9.0]), directions=directions, offsets=np.array([2.0, -1.0]))
    assert losses.interpolation_gap == pytest.approx(0, abs=1e-12)
    assert [alpha(losses, tau) for tau in (0.1, 1.0, 5.0)] == pytest.approx([1, 1, 1])


@pytest.mark.parametrize("losses", PROBLEMS)
def test_properties_5_and_6_bias_factor_is_at_least_one_and_does_not_increase(losses: AbsoluteLosses) -> None:
    clip_norms = _clip_norms(losses)
    factors = np.array([losses.lipschitz[-1] / (tau * alpha(losses, tau)) for tau in clip_norms])
    assert (factors >= 1 - 1e-12).all()
    assert (np.diff(factors) <= 1e-12).all()


@pytest.mark.parametrize("losses", PROBLEMS)
@pytest.mark.parametrize("part", [0.5, 2.0, 5.0])
def test_alpha_is_the_infimum_of_the_definition(losses: AbsoluteLosses, part: float) -> None:
    tau = min(losses.lipschitz[0] * part, losses.lipschitz[-1])
    generator = np.random.default_rng(1)
    scales = 10 ** generator.uniform(-3, 4, size=(200_000, 1))
    points = losses.minimiser + scales * generator.normal(size=(200_000, 2))
    searched = _ratio(losses, tau, points).min()
    assert alpha(losses, tau) <= searched * (1 + 1e-9)
    assert searched <= alpha(losses, tau) * 1.02


def test_alpha_in_closed_form_for_two_perpendicular_groups() -> None:
    directions = np.array([[1.0, 0], [0, 1.0], [1.0, 0], [0, 1.0]])
    losses = AbsoluteLosses(lipschitz=np.array([1.0, 2, 5, 8]), directions=directions, offsets=directions @ [3.0, 4])
    tau = 2.0
    first, second = (1 / 2 + 1) / ((1 + 5) / 8), (1 + 1) / ((2 + 8) / 8)
    assert alpha(losses, tau) == pytest.approx(min(first, second))


@pytest.mark.parametrize("losses", PROBLEMS)
def test_beyond_the_largest_constant_only_the_noise_grows(losses: AbsoluteLosses) -> None:
    largest = losses.lipschitz[-1]
    assert alpha(losses, 3 * largest) == pytest.approx(1 / 3)
    at, beyond = (risk_bound(losses, tau, 0.01, ORIGIN, C=1.0) for tau in (largest, 3 * largest))
    assert beyond.term_a == pytest.approx(3 * at.term_a)
    assert at.term_b == pytest.approx(0, abs=1e-12)
    assert beyond.term_b == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("losses", PROBLEMS)
def test_minimiser_is_no_worse_than_any_point_near_or_far(losses: AbsoluteLosses) -> None:
    generator = np.random.default_rng(2)
    scales = 10 ** generator.uniform(-4, 2, size=(50_000, 1))
    points = losses.minimiser + scales * generator.normal(size=(50_000, 2))
    assert losses.risk(losses.minimiser) <= losses.risk(points).min() + 1e-12


def test_interpolating_samples_share_a_minimiser_and_others_do_not() -> None:
    assert _losses(0, True).interpolation_gap == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(_losses(0, True).minimiser, [1, -2])
    assert _losses(0, False).interpolation_gap > 0.1


@pytest.mark.parametrize("losses", PROBLEMS)
def test_term_a_never_falls_and_term_b_never_rises_with_the_clip_norm(losses: AbsoluteLosses) -> None:
    bounds = [risk_bound(losses, tau, 0.01, ORIGIN, C=1.0) for tau in _clip_norms(losses)]
    assert (np.diff([b.term_a for b in bounds]) >= -1e-9).all()
    assert (np.diff([b.term_b for b in bounds]) <= 1e-9).all()


def test_bound_is_theorem_5_4_as_printed_where_its_steps_are_a_whole_number() -> None:
    losses, tau, C, T = _losses(1, False), 1.0, 0.7, 400
    phi = 1 / math.sqrt(3 * T)
    assert convex_steps(phi) == T
    distance = losses.distance(ORIGIN)
    printed_a = (distance**2 / C + 2 * C) * losses.lipschitz[-1] * phi / alpha(losses, tau)
    printed_b = (losses.lipschitz[-1] / (tau * alpha(losses, tau)) - 1) * losses.interpolation_gap
    bound = risk_bound(losses, tau, phi, ORIGIN, C)
    assert (bound.term_a, bound.term_b) == pytest.approx((printed_a, printed_b))
    assert learning_rate(C, tau, phi, T) == pytest.approx(3 * C * phi / (2 * tau))


def test_best_constant_gives_the_least_bound() -> None:
    losses = _losses(2, True)
    best = best_constant(losses.distance(ORIGIN))
    at = [risk_bound(losses, 1.0, 0.01, ORIGIN, best * factor).total for factor in (0.9, 1.0, 1.1)]
    assert at[1] < min(at[0], at[2])


def _tail(k: float, phi: float) -> HeavyTail:
    return HeavyTail(k=k, G=3.0, phi=phi, C=0.8, distance=1.7, gamma=0.25)


@pytest.mark.parametrize("k", [1.5, 2.0, 4.0, math.inf])
def test_bounds_are_the_printed_ones_at_one_over_phi_squared_steps(k: float) -> None:
    phi, G, C, D0, gamma, L, gap, D = 0.01, 3.0, 0.8, 1.7, 0.25, 5.0, 2.0, 0.3
    tail, scale = _tail(k, phi), G / gamma ** (1 / k)
    r = 1 - 2 / (k + 1)
    convex = (D0**2 / C + 4 * C) / 2 ** (0.5 + 1 / (k + 1)) * phi**r
    convex += 2 ** (1 - 2 / (k + 1)) * (D0 + C) * phi ** (2 * r)
    assert tail.convex().bound == pytest.approx(scale * convex)
    sharp = (2 ** (0.5 * (1 - 1 / k)) * (D0**2 / C + 2 * C) + 16 * D) * phi ** (1 - 1 / k)
    assert tail.convex_sharp(D).bound == pytest.approx(G * sharp)
    p = 1 / (2 * k - 1)
    nonconvex = math.sqrt(2 * L) ** (1 - p) * G ** (1 + p) / (gamma ** (2 * p) * C**p)
    nonconvex *= (3 * C + 2 * gap / C) * phi ** (1 - p)
    assert tail.nonconvex(L, gap).bound == pytest.approx(nonconvex)


@pytest.mark.parametrize("k", [1.5, 2.0, 4.0, math.inf])
def test_bounds_and_clip_norms_scale_as_table_2_says_for_small_phi(k: float) -> None:
    def slopes(theorem: str) -> tuple[float, float]:
        settings = []
        for phi in (1e-14, 1e-16):
            tail = _tail(k, phi)
            one = {"6.2": tail.convex, "6.5": lambda t=tail: t.convex_sharp(0.3)}.get(theorem)
            settings.append(one() if one else tail.nonconvex(5.0, 2.0))
        first, second = settings
        return (
            math.log(first.bound / second.bound) / math.log(100),
            math.log(first.clip_norm / second.clip_norm) / math.log(100),
        )

    for theorem, clip_exponent in {"6.2": -2 / (k + 1), "6.5": -1 / k, "6.8": -1 / (2 * k - 1)}.items():
        assert slopes(theorem) == pytest.approx((exponent(theorem, k), clip_exponent), abs=0.01)


def test_every_exponent_is_one_under_uniform_lipschitzness_and_order_is_as_the_paper_says() -> None:
    assert {exponent(theorem, math.inf) for theorem in ("6.2", "6.5", "6.8")} == {1.0}
    for k in (1.5, 2.0, 4.0):
        assert exponent("6.2", k) < exponent("6.5", k) < exponent("6.8", k) < 1
