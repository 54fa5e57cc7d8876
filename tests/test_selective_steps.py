import math

import pytest
import torch

from dpexp.algorithms import dpsr_cg, dpsur, scaling
from dpexp.algorithms.candidate import Candidate
from dpexp.algorithms.optimizers import OPTIMIZERS, State

NORMS = torch.tensor([0.0, 1e-30, 0.5, 5.999, 6.0, 6.001, 8.0, 11.0, 40.0, 1e30], dtype=torch.float64)


def test_scaling_bounds_every_gradient_by_the_clip_norm():
    for bound in (0.1, 1.0, 6.0):
        assert (scaling.scaled(NORMS, 1.0, bound) * NORMS).max() <= 1 + 1e-12
    assert (scaling.clipped(NORMS, 0.1) * NORMS).max() <= 0.1 + 1e-12


def test_scaling_is_clipping_at_the_bound_times_a_constant():
    torch.testing.assert_close(scaling.scaled(NORMS, 1.0, 6.0), scaling.clipped(NORMS, 6.0) / 6.0)


def test_the_published_scaling_leaves_norm_s_g_above_the_bound():
    scaled = scaling.scaled_as_published(NORMS, 1.0, 6.0) * NORMS
    torch.testing.assert_close(scaled[NORMS > 6.0], torch.full((5,), 6.0, dtype=torch.float64), rtol=1e-6, atol=0)
    torch.testing.assert_close(scaled[NORMS <= 6.0], NORMS[NORMS <= 6.0] / 6)


def test_the_metric_is_zero_up_to_the_bound_and_saturates():
    expected = torch.tensor([0, 0, 0, 0, 0, 6.001 / 11, 8 / 11, 1, 1, 1], dtype=torch.float64)
    torch.testing.assert_close(scaling.metric(NORMS, 6.0, 11.0, 1.0), expected)


@pytest.mark.parametrize(
    ("name", "theirs"),
    [("sgd", lambda p: torch.optim.SGD(p, lr=0.3, momentum=0.9)), ("adam", lambda p: torch.optim.Adam(p, lr=0.3))],
)
def test_an_optimizer_equals_torchs_bit_by_bit(name, theirs):
    draws = torch.Generator().manual_seed(0)
    first = tuple(torch.randn(shape, generator=draws) for shape in ((3, 4), (4,)))
    parameters = [w.clone().requires_grad_() for w in first]
    optimizer, state = theirs(parameters), State(params=first)
    for _ in range(5):
        gradient = tuple(torch.randn(w.shape, generator=draws) for w in first)
        for parameter, g in zip(parameters, gradient, strict=True):
            parameter.grad = g.clone()
        optimizer.step()
        state = OPTIMIZERS[name](state, gradient, 0.3)
        assert all(torch.equal(w, p.detach()) for w, p in zip(state.params, parameters, strict=True))


def make_test(**changes):
    constants = dict(
        scaling_bound=6.0, saturation=11.0, metric_bound=1.0, clip_range=2.0, threshold=3.0, std=8.6, reference="noisy"
    )
    return dpsr_cg.Test(**(constants | changes))


def test_the_first_update_counts_as_the_largest_improvement():
    assert make_test().noisy_difference(math.inf, 1e4, 0.0) == 2.0


@pytest.mark.parametrize(("gap", "clipped"), [(-1e6, -2.0), (-2.5, -2.0), (-1.5, -1.5), (0.25, 0.25), (1e6, 2.0)])
def test_the_difference_is_clipped_before_the_noise(gap, clipped):
    assert make_test(std=10.0).noisy_difference(100.0 + gap, 100.0, 0.5) == clipped + 5.0


def test_infinite_thresholds_accept_all_or_nothing():
    assert make_test(threshold=-math.inf).passes(-1e300)
    assert make_test(threshold=-math.inf).passes(math.nan)
    assert not make_test(threshold=math.inf).passes(1e300)


def test_a_metric_that_is_not_a_number_never_passes():
    test = make_test()
    assert not test.passes(test.noisy_difference(1.0, math.nan, 50.0))


def test_the_metric_of_an_empty_batch_is_zero():
    assert make_test().metric(torch.zeros(0)) == 0.0


def test_only_the_published_code_keeps_what_a_rejected_update_left_in_the_optimizer():
    old = State(params=(torch.zeros(2),), moments=((torch.zeros(2),),), updates=3)
    new = State(params=(torch.ones(2),), moments=((torch.ones(2),),), updates=4)
    candidate = Candidate(state=new, norm=torch.zeros(0), loss=torch.zeros(0))
    assert dpsr_cg.after(old, candidate, accepted=True, restore_optimizer=True) is new
    assert dpsr_cg.after(old, candidate, accepted=False, restore_optimizer=True) is old
    kept = dpsr_cg.after(old, candidate, accepted=False, restore_optimizer=False)
    assert kept.params is old.params
    assert kept.moments is new.moments


def test_dpsur_accepts_a_fall_of_the_loss_beyond_its_threshold():
    test = dpsur.LossTest(validation_batch=256, loss_bound=1e-3, threshold=-1e-3, std=0.0, stored_loss=False)
    assert test.noisy_difference(2.0, 1.0, 0.0) == -1e-3
    assert not test.passes(-1e-3)
    assert test.passes(-1.1e-3)
