"""Heads trained on fixed features, K runs at a time.

Weights carry the run axis first, so that the weights of all runs form one matrix and a mini-batch shared by K runs
costs two matrix products, whatever K is. Per-sample gradients are never stored: their norms have a closed form.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Weights = tuple[Tensor, ...]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Inputs x [b, d] (with their constant 1, if the head has a bias), labels y [b] and norms |x| [b]."""

    x: Tensor
    y: Tensor
    norm: Tensor


@dataclass(frozen=True, kw_only=True)
class ClippedSum:
    """sum_i clip(g_i, clip_norm) for each run, shaped like the weights, and what was seen on the way.

    loss, clipped: [K], sums over the batch of the cross-entropy and of the number of samples that were clipped.
    They come from private data and are diagnostics, not part of the release.
    """

    gradient: Weights
    loss: Tensor
    clipped: Tensor


@dataclass(frozen=True, kw_only=True)
class Head:
    """The functions that make up a head."""

    shapes: Callable[[int, int], list[tuple[int, ...]]]
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


def _softmax_shapes(dimension: int, num_classes: int) -> list[tuple[int, ...]]:
    return [(num_classes, dimension)]


def _softmax_logits(weights: Weights, x: Tensor) -> Tensor:
    """Logits [K, m, b] of inputs x [b, d] under weights [K, m, d]."""
    (w,) = weights
    runs, classes, dimension = w.shape
    return torch.mm(w.view(runs * classes, dimension), x.T).view(runs, classes, len(x))


def _one_hot(labels: Tensor, classes: int, like: Tensor) -> Tensor:
    """e_y as a contiguous [m, b], the order in which residuals are stored."""
    return torch.zeros(classes, len(labels), dtype=like.dtype, device=like.device).scatter_(0, labels[None], 1)


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
    residual = torch.softmax(logits, dim=1, out=space.tensor("residual", size, w))
    truth = batch.y.expand(runs, 1, -1)
    loss = -residual.gather(1, truth).clamp_min_(torch.finfo(w.dtype).tiny).log_().sum(dim=(1, 2))
    residual.sub_(_one_hot(batch.y, classes, w))
    squares = torch.mul(residual, residual, out=logits)  # the logits are no longer needed
    factors = clip_factors(squares.sum(dim=1).sqrt_().mul_(batch.norm), clip_norm)
    residual.mul_(factors[:, None, :])
    gradient = space.tensor("gradient", tuple(w.shape), w)
    torch.mm(residual.view(runs * classes, -1), batch.x, out=gradient.view(runs * classes, dimension))
    return ClippedSum(gradient=(gradient,), loss=loss, clipped=(factors < 1).sum(dim=1))


HEADS: dict[str, Head] = {
    "softmax": Head(shapes=_softmax_shapes, logits=_softmax_logits, clipped_sum=_softmax_clipped_sum),
}
