"""Theorems A and B against exact enumeration of small worlds, and against ten worlds that were enumerated elsewhere."""

import math

import numpy as np
import pytest
from enumerated_worlds import World, clones, counted, exact, make_world, vectors
from scipy.stats import norm

from dpexp.accountants import renyi_divergence
from dpexp.selective.theorems import Acceptance, bound_a, bound_b, counts, geometric, log_add, log_remove

VECTORS = vectors()
SMALL = [name for name in VECTORS if name != "V10"]
ENDS = {"V1": False, "V9": False}


def make_acceptance(inputs):
    return Acceptance(
        threshold=inputs["tau"],
        clip_range=inputs["Cmax"],
        std=inputs["sv"],
        sensitivity=inputs["Ce"],
        signed=inputs["signed"],
    )


def joint(inputs):
    return (inputs["st"] ** -2 + inputs["sr"] ** -2) ** -0.5


def bounds(inputs):
    return bound_a(inputs["order"], inputs["q"], joint(inputs), make_acceptance(inputs).ratios)


def at_ends_only(inputs):
    """What the bounds would be if the ratio of acceptance were the same for every batch."""
    order, q, sigma, ratios = inputs["order"], inputs["q"], joint(inputs), make_acceptance(inputs).ratios
    ends = [bound_a(order, q, sigma, (ratio, ratio)) for ratio in ratios]
    return tuple(max(pair) for pair in zip(*ends, strict=True))


def closed_form(inputs):
    """The weaker bound in closed form: a sampled Gaussian at the rate among accepted batches, and a tilt."""
    q, order, (least, most) = inputs["q"], inputs["order"], make_acceptance(inputs).ratios
    tilt = math.log((1 - q + q * most) / (1 - q + q * least))
    rate = q * most / (1 - q + q * most)
    return renyi_divergence(rate, joint(inputs), 1, order) + order * tilt**2 / 8


@pytest.mark.parametrize("name", VECTORS)
def test_theorem_a_gives_the_bounds_of_the_vectors_in_both_directions(name):
    inputs, _, known = VECTORS[name]
    assert make_acceptance(inputs).ratios == pytest.approx((known["r_min"], known["r_max"]), rel=1e-12)
    # subtracting near-equal logarithms leaves 1e-16 / divergence of relative error
    assert bounds(inputs) == pytest.approx((known["add"], known["rem"]), rel=1e-9, abs=2e-14)
    assert closed_form(inputs) == pytest.approx(known["closed_form3"], rel=1e-9)
    assert closed_form(inputs) >= max(bounds(inputs))


@pytest.mark.parametrize("name", SMALL)
def test_enumeration_gives_the_exact_values_of_the_vectors_and_stays_within_the_bounds(name):
    inputs, known, _ = VECTORS[name]
    found = exact(make_world(inputs))
    assert found == pytest.approx(known, rel=1e-6, abs=1e-12)
    for direction, bound in zip(("add", "rem"), bounds(inputs), strict=True):
        assert found[direction] <= bound * (1 + 1e-9) + 1e-13


def test_the_clones_of_v10_are_summed_exactly():
    inputs, known, _ = VECTORS["V10"]
    found = clones(*(inputs[k] for k in ("n", "q", "st", "sv", "tau", "Cmax", "R")))
    assert found == pytest.approx(known["add"], rel=1e-6)
    assert found < min(bounds(inputs))


def test_a_bound_of_one_ratio_for_all_batches_is_too_small():
    # V3: what one record changes in the law of the others must be paid for
    inputs, _, known = VECTORS["V3"]
    found, ends = exact(make_world(inputs)), at_ends_only(inputs)
    assert ends == pytest.approx((known["ends_only_add"], known["ends_only_rem"]), rel=1e-9)
    assert found["add"] > ends[0]
    assert found["rem"] > ends[1]
    assert found["add"] > renyi_divergence(inputs["q"], joint(inputs), 1, inputs["order"])


def test_the_papers_formula_is_too_small_for_the_clones():
    inputs, _, known = VECTORS["V10"]
    found = clones(*(inputs[k] for k in ("n", "q", "st", "sv", "tau", "Cmax", "R")))
    q, rho = inputs["q"], make_acceptance(inputs).inflation
    plain, inflated = (renyi_divergence(rate, inputs["st"], 1, 2) for rate in (q, q * rho))
    assert (plain, inflated) == pytest.approx((known["sgm_q"], known["sgm_q_rho"]), rel=1e-6)
    assert found > 2 * inflated > 2 * plain
