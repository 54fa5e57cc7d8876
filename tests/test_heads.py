import pytest
import torch

from dpexp.heads import HEADS, Batch, Workspace, clip_factors

SOFTMAX = HEADS["softmax"]


def batch_of(x, y):
    x = torch.as_tensor(x, dtype=torch.float64)
    return Batch(x=x, y=torch.as_tensor(y), norm=torch.linalg.vector_norm(x, dim=1))


def one_by_one(w, batch, clip_norm):
    """Clipped sums for each run from autograd, one sample at a time: the definition."""
    total = torch.zeros_like(w)
    for run in range(len(w)):
        for x, y in zip(batch.x, batch.y, strict=True):
            parameters = w[run].clone().requires_grad_()
            torch.nn.functional.cross_entropy((parameters @ x)[None], y[None]).backward()
            gradient = parameters.grad
            total[run] += gradient * min(1.0, float(clip_norm[run] / gradient.norm()))
    return total


def test_clipped_sum_equals_autograd_one_sample_at_a_time():
    draws = torch.Generator().manual_seed(0)
    w = torch.randn(3, 4, 5, generator=draws, dtype=torch.float64)
    batch = batch_of(torch.randn(9, 5, generator=draws, dtype=torch.float64), [0, 1, 2, 3, 3, 2, 1, 0, 0])
    clip_norm = torch.tensor([0.3, 2.0, torch.inf], dtype=torch.float64)
    total = SOFTMAX.clipped_sum((w,), batch, clip_norm, Workspace())
    assert torch.allclose(total.gradient[0], one_by_one(w, batch, clip_norm), rtol=1e-12, atol=1e-12)
    assert total.clipped[2] == 0
    assert 0 < total.clipped[1] < total.clipped[0] <= 9


def test_loss_is_the_summed_cross_entropy():
    draws = torch.Generator().manual_seed(0)
    w = torch.randn(2, 4, 5, generator=draws, dtype=torch.float64)
    batch = batch_of(torch.randn(6, 5, generator=draws, dtype=torch.float64), [0, 1, 2, 3, 0, 1])
    total = SOFTMAX.clipped_sum((w,), batch, torch.ones(2, dtype=torch.float64), Workspace())
    expected = [torch.nn.functional.cross_entropy(batch.x @ w[k].T, batch.y, reduction="sum") for k in range(2)]
    assert torch.allclose(total.loss, torch.stack(expected))


@pytest.mark.parametrize(
    ("x", "classes", "norm"),
    [
        ((1, 2, 2, 1), 10, 3.0),  # with bias
        ((1, 2, 2), 10, 2.846050),
        ((1, 2, 2, 1), 2, 2.236068),
        ((1, 2, 2), 2, 2.121320),
        ((0, 0, 0, 1), 10, 0.948683),  # a zero feature row with bias: sqrt(0.9)
        ((0, 0, 0), 10, 0.0),
    ],
)
def test_gradient_norm_at_zero_weights_has_its_closed_form(x, classes, norm):
    w = torch.zeros(1, classes, len(x), dtype=torch.float64)
    total = SOFTMAX.clipped_sum((w,), batch_of([x], [0]), torch.tensor([torch.inf]).double(), Workspace())
    assert float(total.gradient[0].norm()) == pytest.approx(norm, abs=1e-6)
    assert total.gradient[0].isfinite().all()


def test_a_gradient_of_norm_three_is_halved_by_clip_norm_one_and_a_half():
    w = torch.zeros(2, 10, 4, dtype=torch.float64)
    clip_norm = torch.tensor([1.5, torch.inf], dtype=torch.float64)
    clipped, whole = SOFTMAX.clipped_sum((w,), batch_of([(1, 2, 2, 1)], [0]), clip_norm, Workspace()).gradient[0]
    assert torch.allclose(clipped, whole / 2)


def test_clip_factor_of_a_zero_gradient_is_one():
    factors = clip_factors(torch.tensor([[0.0, 1.0, 4.0]]), torch.tensor([2.0]))
    assert factors.tolist() == [[1.0, 1.0, 0.5]]


def test_one_sample_moves_the_sum_by_at_most_the_clip_norm():
    draws = torch.Generator().manual_seed(4)
    w = 3 * torch.randn(1, 4, 5, generator=draws, dtype=torch.float64)
    x = 10 * torch.randn(30, 5, generator=draws, dtype=torch.float64)
    y = torch.arange(30) % 4
    clip_norm, space = torch.tensor([0.7], dtype=torch.float64), Workspace()
    whole = SOFTMAX.clipped_sum((w,), batch_of(x, y), clip_norm, space).gradient[0].clone()
    for left_out in range(30):
        keep = torch.arange(30) != left_out
        rest = SOFTMAX.clipped_sum((w,), batch_of(x[keep], y[keep]), clip_norm, space).gradient[0]
        assert float((whole - rest).norm()) <= 0.7 * (1 + 1e-12)


def test_duplicate_rows_are_clipped_one_by_one():
    w = torch.zeros(1, 3, 2, dtype=torch.float64)
    clip_norm, space = torch.tensor([0.1], dtype=torch.float64), Workspace()
    total = SOFTMAX.clipped_sum((w,), batch_of([(3, 4), (3, 4)], [1, 1]), clip_norm, space)
    assert float(total.gradient[0].norm()) == pytest.approx(0.2)


def test_huge_features_keep_loss_and_factors_finite():
    w = torch.ones(1, 3, 2)
    w[0, 0] = -1
    x = torch.tensor([[3e4, 4e4], [1e4, -1e4]])
    batch = Batch(x=x, y=torch.tensor([0, 1]), norm=torch.linalg.vector_norm(x, dim=1))
    total = SOFTMAX.clipped_sum((w,), batch, torch.tensor([1.0]), Workspace())
    assert total.loss.isfinite().all()
    assert total.gradient[0].isfinite().all()


def test_an_empty_batch_has_a_zero_sum():
    w = torch.ones(2, 3, 4)
    batch = Batch(x=torch.zeros(0, 4), y=torch.zeros(0, dtype=torch.int64), norm=torch.zeros(0))
    total = SOFTMAX.clipped_sum((w,), batch, torch.ones(2), Workspace())
    assert not total.gradient[0].any()
    assert not total.loss.any()


def test_workspace_gives_every_size_it_is_asked_for():
    space, like = Workspace(), torch.zeros(())
    for rows in (5, 3, 9, 100, 2):
        assert space.tensor("a", (rows, 4), like).shape == (rows, 4)
    assert space.tensor("a", (2, 2), like.double()).dtype == torch.float64
