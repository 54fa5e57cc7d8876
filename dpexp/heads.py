"""Heads trained on fixed features, K runs at a time.

Weights carry the run axis first, so that the weights of all runs form one matrix and a mini-batch shared by K runs
costs two matrix products, whatever K is. Per-sample gradients are never stored: their norms have a closed form.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Weights = tuple[Tensor, ...]


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What fixes a head's shapes. inputs: d, the constant 1 included if the head has a bias. hidden: MLP only."""

    inputs: int
    classes: int
    bias: bool
    hidden: int | None = None


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Inputs x [b, d] (with their constant 1, if the head has a bias), labels y [b] and norms |x| [b].

    observed: whether the step reports its loss and clipping, which costs 3 % of it.
    """

    x: Tensor
    y: Tensor
    norm: Tensor
    observed: bool = True


@dataclass(frozen=True, kw_only=True)
class ClippedSum:
    """sum_i clip(g_i, clip_norm) for each run, shaped like the weights, and what was seen on the way.

    loss, clipped: [K], sums over an observed batch of the cross-entropy and of the number of samples that were
    clipped. They come from private data and are diagnostics, not part of the release.
    """

    gradient: Weights
    loss: Tensor | None
    clipped: Tensor | None


@dataclass(frozen=True, kw_only=True)
class Head:
    """The functions that make up a head.

    shapes: of one run's weights. init: one run's first weights, float64 on the CPU, so that every device and every
    run of a seed starts from the same numbers. kept: how many numbers per run and example a step or an evaluation
    holds at most, from which the memory of a program follows.
    """

    shapes: Callable[[Sizes], list[tuple[int, ...]]]
    init: Callable[[Sizes, torch.Generator], Weights]
    kept: Callable[[Sizes], int]
    logits: Callable[[Weights, Tensor], Tensor]
    clipped_sum: Callable[[Weights, Batch, Tensor, "Workspace"], ClippedSum]


class Workspace:
    """Buffers that are reused from step to step: fresh memory would cost as much as the arithmetic on it."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    def tensor(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """An uninitialised tensor of this shape; its content is overwritten by the next call with the same name."""
        size = 1
        for length in shape:
            size *= length
        buffer = self._buffers.get(name)
        if buffer is None or buffer.numel() < size or buffer.dtype != like.dtype:
            room = size + size // 4  # Poisson batches vary in size
            buffer = self._buffers[name] = torch.empty(room, dtype=like.dtype, device=like.device)
        return buffer[:size].view(shape)


def clip_factors(norms: Tensor, clip_norm: Tensor) -> Tensor:
    """min(1, clip_norm / norm) (paper L, Equation 2); 1 where the norm is zero.

    norms: [K, b]. clip_norm: [K], infinity for no clipping. A non-finite norm is returned as a factor of 0 or NaN
    and surfaces as a non-finite loss.
    """
    return (clip_norm[:, None] / norms).clamp_(max=1.0)


def _cross_entropy(logits: Tensor, batch: Batch, residual: Tensor) -> Tensor | None:
    """Fill `residual` [K, m, b] with softmax(logits) - e_y; the loss [K] summed over the batch, if it is observed."""
    runs, classes, _ = logits.shape
    torch.softmax(logits, dim=1, out=residual)
    loss = None
    if batch.observed:
        truth = residual.gather(1, batch.y.expand(runs, 1, -1))
        loss = -truth.clamp_min_(torch.finfo(logits.dtype).tiny).log_().sum(dim=(1, 2))
    residual.sub_(_one_hot(batch.y, classes, logits))
    return loss


def _count_clipped(factors: Tensor, batch: Batch) -> Tensor | None:
    """How many samples of an observed batch were clipped, [K]."""
    return (factors < 1).sum(dim=1) if batch.observed else None


def _one_hot(labels: Tensor, classes: int, like: Tensor) -> Tensor:
    """e_y as a contiguous [m, b], the order in which residuals are stored."""
    return torch.zeros(classes, len(labels), dtype=like.dtype, device=like.device).scatter_(0, labels[None], 1)


def _softmax_shapes(sizes: Sizes) -> list[tuple[int, ...]]:
    return [(sizes.classes, sizes.inputs)]


def _softmax_init(sizes: Sizes, generator: torch.Generator) -> Weights:
    """Zeros, as paper L's convex experiments need no other start; draws nothing."""
    return tuple(torch.zeros(shape, dtype=torch.float64) for shape in _softmax_shapes(sizes))


def _softmax_logits(weights: Weights, x: Tensor) -> Tensor:
    """Logits [K, m, b] of inputs x [b, d] under weights [K, m, d]."""
    (w,) = weights
    runs, classes, dimension = w.shape
    return torch.mm(w.view(runs * classes, dimension), x.T).view(runs, classes, len(x))


def _softmax_clipped_sum(weights: Weights, batch: Batch, clip_norm: Tensor, space: Workspace) -> ClippedSum:
    """Clipped gradient sums of multinomial logistic regression.

    With the residual r_i = softmax(W x_i) - e_{y_i}, the gradient of sample i is r_i x_i^T, its norm |r_i| |x_i|
    (paper L, Equation 8), and the clipped sum is (c * R) X with c_i = min(1, clip_norm / (|r_i| |x_i|)).
    """
    (w,) = weights
    runs, classes, dimension = w.shape
    size = (runs, classes, len(batch.y))
    logits = torch.mm(
        w.view(runs * classes, dimension),
        batch.x.T,
        out=space.tensor("logits", (runs * classes, len(batch.y)), w),
    ).view(size)
    residual = space.tensor("residual", size, w)
    loss = _cross_entropy(logits, batch, residual)
    squares = torch.mul(residual, residual, out=logits)  # the logits are no longer needed
    factors = clip_factors(squares.sum(dim=1).sqrt_().mul_(batch.norm), clip_norm)
    residual.mul_(factors[:, None, :])
    gradient = space.tensor("gradient", tuple(w.shape), w)
    torch.mm(residual.view(runs * classes, -1), batch.x, out=gradient.view(runs * classes, dimension))
    return ClippedSum(gradient=(gradient,), loss=loss, clipped=_count_clipped(factors, batch))


def _mlp_shapes(sizes: Sizes) -> list[tuple[int, ...]]:
    """W_1 (its bias is the column of the constant 1), W_2 and, if the head has a bias, b_2."""
    assert sizes.hidden is not None, "mlp_tanh has a hidden layer"
    shapes: list[tuple[int, ...]] = [(sizes.hidden, sizes.inputs), (sizes.classes, sizes.hidden)]
    return [*shapes, (sizes.classes,)] if sizes.bias else shapes


def _mlp_init(sizes: Sizes, generator: torch.Generator) -> Weights:
    """PyTorch's default for Linear: every weight and bias of a layer uniform in +-1 / sqrt(fan-in)."""
    first, second, *bias = _mlp_shapes(sizes)
    fans = [(first, sizes.inputs - sizes.bias), *((shape, second[1]) for shape in (second, *bias))]  # 1 is no input
    return tuple(
        (2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1) / math.sqrt(fan) for shape, fan in fans
    )


def _mlp_forward(weights: Weights, x: Tensor, space: Workspace) -> tuple[Tensor, Tensor]:
    """Hidden values tanh(W_1 x) [K, h, b] and logits W_2 h + b_2 [K, m, b]."""
    first, second, *bias = weights
    (runs, hidden, dimension), classes = first.shape, second.shape[1]
    h = space.tensor("hidden", (runs, hidden, len(x)), first)
    torch.mm(first.view(runs * hidden, dimension), x.T, out=h.view(runs * hidden, len(x))).tanh_()
    logits = torch.bmm(second, h, out=space.tensor("logits", (runs, classes, len(x)), first))
    return h, logits.add_(bias[0][:, :, None]) if bias else logits


def _mlp_logits(weights: Weights, x: Tensor) -> Tensor:
    """Logits [K, m, b] of inputs x [b, d]."""
    return _mlp_forward(weights, x, Workspace())[1]


def _mlp_clipped_sum(weights: Weights, batch: Batch, clip_norm: Tensor, space: Workspace) -> ClippedSum:
    """Clipped gradient sums of a two-layer tanh network (paper L, Appendix C).

    Backpropagation gives delta_2 = softmax(W_2 h + b_2) - e_y and delta_1 = (W_2^T delta_2) * (1 - h^2). The gradient
    of sample i is (delta_1 x^T, delta_2 h^T, delta_2), its squared norm |delta_1|^2 |x|^2 + |delta_2|^2 (|h|^2 + 1)
    with the constant 1 counted in |x| (Goodfellow 2015, arXiv:1510.01799), and the clipped sums are products again.
    """
    first, second, *bias = weights
    h, logits = _mlp_forward(weights, batch.x, space)
    delta_2 = space.tensor("delta_2", tuple(logits.shape), first)
    loss = _cross_entropy(logits, batch, delta_2)
    squares = torch.mul(h, h, out=space.tensor("squares", tuple(h.shape), first))
    outer = squares.sum(dim=1).add_(1.0 if bias else 0.0)
    outer.mul_(torch.mul(delta_2, delta_2, out=logits).sum(dim=1))  # the logits are no longer needed
    delta_1 = torch.bmm(second.mT, delta_2, out=space.tensor("delta_1", tuple(h.shape), first))
    delta_1.addcmul_(delta_1, squares, value=-1)
    inner = torch.mul(delta_1, delta_1, out=squares).sum(dim=1).mul_(batch.norm.square())
    factors = clip_factors(inner.add_(outer).sqrt_(), clip_norm)
    delta_1.mul_(factors[:, None, :])
    delta_2.mul_(factors[:, None, :])
    gradients = [space.tensor(f"gradient_{number}", tuple(w.shape), w) for number, w in enumerate(weights)]
    rows = h.shape[0] * h.shape[1]
    torch.mm(delta_1.view(rows, -1), batch.x, out=gradients[0].view(rows, -1))
    torch.bmm(delta_2, h.mT, out=gradients[1])
    if bias:
        torch.sum(delta_2, dim=2, out=gradients[2])
    return ClippedSum(gradient=tuple(gradients), loss=loss, clipped=_count_clipped(factors, batch))


HEADS: dict[str, Head] = {
    "softmax": Head(
        shapes=_softmax_shapes,
        init=_softmax_init,
        kept=lambda sizes: 3 * sizes.classes,
        logits=_softmax_logits,
        clipped_sum=_softmax_clipped_sum,
    ),
    "mlp_tanh": Head(
        shapes=_mlp_shapes,
        init=_mlp_init,
        kept=lambda sizes: 3 * ((sizes.hidden or 0) + sizes.classes),
        logits=_mlp_logits,
        clipped_sum=_mlp_clipped_sum,
    ),
}
