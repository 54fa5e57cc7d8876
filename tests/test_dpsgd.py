import pytest
import torch
from opacus.grad_sample import GradSampleModule
from opacus.optimizers import DPOptimizer

from dpexp.algorithms.dpsgd import Plan, step
from dpexp.heads import HEADS, Batch, Workspace


def plan(clip_norm, noise_std, learning_rate, batch_size, dtype=torch.float64):
    as_tensor = lambda values: torch.tensor(values, dtype=dtype)  # noqa: E731
    return Plan(
        head=HEADS["softmax"],
        clip_norm=as_tensor(clip_norm),
        noise_std=as_tensor(noise_std),
        learning_rate=as_tensor(learning_rate),
        expected_batch_size=batch_size,
    )


class GivenNoise(DPOptimizer):
    """Opacus' optimizer with its noise replaced by a given unit draw."""

    unit = None

    def add_noise(self):
        for p in self.params:
            p.grad = p.summed_grad + self.noise_multiplier * self.max_grad_norm * self.unit


@pytest.mark.parametrize("clip_norm", [0.2, 3.0, 50.0])
def test_the_packed_step_equals_opacus_on_the_same_batches_and_noise(clip_norm):
    # Opacus clips to C / (norm + 1e-6), the paper to C / norm. In units where features are `scale` times as large,
    # gradients are too, weights are 1/scale of theirs, and Opacus' 1e-6 is lost: the same training otherwise.
    scale = 1e5
    clip_norm *= scale
    draws = torch.Generator().manual_seed(0)
    normal = lambda *shape: torch.randn(*shape, generator=draws, dtype=torch.float64)  # noqa: E731
    classes, dimension, sigma, rate, expected = 4, 5, 1.3, 0.7 / scale**2, 6
    module = GradSampleModule(torch.nn.Linear(dimension, classes, bias=False, dtype=torch.float64))
    torch.nn.init.zeros_(module._module.weight)
    optimizer = GivenNoise(
        torch.optim.SGD(module.parameters(), lr=rate),
        noise_multiplier=sigma,
        max_grad_norm=clip_norm,
        expected_batch_size=expected,
    )
    # Three packed runs, of which the middle one is the run that Opacus trains.
    weights = (torch.zeros(3, classes, dimension, dtype=torch.float64),)
    packed = plan([scale, clip_norm, 0.1], [2.0, sigma * clip_norm, 0.3], [rate / 7, rate, 2 * rate], expected)
    space = Workspace()
    for size in (7, 5, 1, 9, 6, 6, 8):
        x, y = scale * normal(size, dimension), torch.randint(classes, (size,), generator=draws)
        unit = normal(3, classes, dimension)
        step(weights, Batch(x=x, y=y, norm=x.norm(dim=1)), (unit,), packed, space)
        optimizer.unit = unit[1]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(x), y).backward()
        optimizer.step()
    ours, theirs = scale * weights[0][1], scale * module._module.weight.detach()
    assert torch.allclose(ours, theirs, rtol=0, atol=1e-9)
    assert float(ours.norm()) > 0.1


def test_an_empty_batch_is_a_step_of_noise_with_std_sigma_c_over_b():
    classes, dimension = 10, 512
    weights = (torch.zeros(1, classes, dimension),)
    empty = Batch(x=torch.zeros(0, dimension), y=torch.zeros(0, dtype=torch.int64), norm=torch.zeros(0))
    unit = torch.randn(1, classes, dimension, generator=torch.Generator().manual_seed(0))
    step(weights, empty, (unit,), plan([0.5], [2.0 * 0.5], [1.0], 10, torch.float32), Workspace())
    assert float(weights[0].std()) == pytest.approx(0.1, rel=0.03)
    assert torch.allclose(weights[0], -0.1 * unit)


def test_the_divisor_is_the_expected_batch_size_not_the_realised_one():
    x, y = torch.ones(4, 2, dtype=torch.float64), torch.zeros(4, dtype=torch.int64)
    weights = (torch.zeros(1, 2, 2, dtype=torch.float64),)
    constants = plan([torch.inf], [0.0], [1.0], 8)
    total = step(weights, Batch(x=x, y=y, norm=x.norm(dim=1)), None, constants, Workspace())
    assert torch.equal(weights[0], -total.gradient[0] / 8)


def test_shared_noise_is_one_draw_scaled_by_each_runs_standard_deviation():
    empty = Batch(x=torch.zeros(0, 3), y=torch.zeros(0, dtype=torch.int64), norm=torch.zeros(0))
    weights, unit = (torch.zeros(2, 4, 3),), torch.randn(1, 4, 3, generator=torch.Generator().manual_seed(0))
    step(weights, empty, (unit,), plan([1.0, 1.0], [1.0, 3.0], [1.0, 1.0], 1, torch.float32), Workspace())
    assert torch.allclose(weights[0][1], 3 * weights[0][0])
    assert torch.allclose(weights[0][0], -unit[0])
