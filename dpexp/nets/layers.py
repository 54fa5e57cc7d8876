"""Layers with hand-written derivatives: what one backward pass to their outputs says about every example's gradient.

An example's weight gradient is a product of what entered a layer and of the gradient at what left it. Its norm and the
weighted sum over a batch follow from that pair, so the gradient itself is never formed (Goodfellow 2015; Li et al.
2022, ghost clipping). Examples do not mix in any layer, so a weighted sum needs no second backward pass either: the
gradients at a layer's output are scaled example by example, and one matrix product sums them.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (the name everyone uses)

Params = tuple[Tensor, ...]
Shape = tuple[int, ...]


class Layer(Protocol):
    """One layer. Batches lead every tensor; `kept` is what the forward pass leaves for the derivatives.

    square_norm and weighted_sum are asked only of layers that have parameters.
    """

    def shapes(self) -> list[Shape]:
        """Shapes of the parameters, in the order of PyTorch's module."""

    def init(self, draws: torch.Generator) -> Params:
        """PyTorch's default initialisation of the layer, float64 on the CPU."""

    def forward(self, params: Params, x: Tensor) -> tuple[Tensor, Params]:
        """Output and `kept`."""

    def local(self, params: Params, kept: Params, grad: Tensor) -> Tensor:
        """From the gradient at the output the one at what the weights produce, [b, ...]; mostly the same.

        It is `grad` in all the methods below.
        """

    def backward(self, params: Params, kept: Params, grad: Tensor) -> Tensor:
        """Gradient at the input."""

    def known(self, x: Tensor) -> Tensor | None:
        """What of square_norm depends on the inputs alone, if that is worth storing, [b, ...]."""

    def square_norm(self, params: Params, kept: Params, grad: Tensor, known: Tensor | None) -> Tensor:
        """Squared norm of each example's gradient over this layer's parameters, [b]."""

    def weighted_sum(self, params: Params, kept: Params, grad: Tensor, factors: Tensor) -> Params:
        """Sum over the batch of factors_i times the parameters' gradients."""


def uniform(draws: torch.Generator, bound: float, *shapes: Shape) -> Params:
    """Tensors of U(-bound, bound) in float64."""
    return tuple(bound * (2 * torch.rand(shape, generator=draws, dtype=torch.float64) - 1) for shape in shapes)


def square_length(x: Tensor) -> Tensor:
    """Squared Euclidean length of every example, [b]."""
    return torch.linalg.vector_norm(x.flatten(1), dim=1).square_()  # one pass, where a product would be stored first


def scaled(grad: Tensor, factors: Tensor) -> Tensor:
    """Every example's gradient times its factor."""
    return grad * factors.view(-1, *[1] * (grad.dim() - 1))


class WholeGradient:
    """A layer whose weights produce its output."""

    def local(self, params: Params, kept: Params, grad: Tensor) -> Tensor:
        return grad


class Plain(WholeGradient):
    """A layer without parameters."""

    def shapes(self) -> list[Shape]:
        return []

    def init(self, draws: torch.Generator) -> Params:
        return ()

    def known(self, x: Tensor) -> Tensor | None:
        return None

    def square_norm(self, params: Params, kept: Params, grad: Tensor, known: Tensor | None) -> Tensor:
        return grad.new_zeros(len(grad))

    def weighted_sum(self, params: Params, kept: Params, grad: Tensor, factors: Tensor) -> Params:
        return ()


class Tanh(Plain):
    """tanh, element by element."""

    def forward(self, params: Params, x: Tensor) -> tuple[Tensor, Params]:
        y = torch.tanh(x)
        return y, (y,)

    def backward(self, params: Params, kept: Params, grad: Tensor) -> Tensor:
        return torch.ops.aten.tanh_backward(grad, kept[0])


class Relu(Plain):
    """max(0, x), element by element, with derivative 0 at 0."""

    def forward(self, params: Params, x: Tensor) -> tuple[Tensor, Params]:
        y = torch.relu(x)
        return y, (y,)

    def backward(self, params: Params, kept: Params, grad: Tensor) -> Tensor:
        return torch.ops.aten.threshold_backward(grad, kept[0], 0)


class Flatten(Plain):
    """[b, channels, rows, columns] to [b, features]."""

    def forward(self, params: Params, x: Tensor) -> tuple[Tensor, Params]:
        return x.flatten(1), (x,)

    def backward(self, params: Params, kept: Params, grad: Tensor) -> Tensor:
        return grad.view(kept[0].shape)


@dataclass(frozen=True, kw_only=True)
class MaxPool(Plain):
    """Largest of every 2x2 window; of equal values the first one gets the gradient, as in PyTorch."""

    stride: int

    def forward(self, params: Params, x: Tensor) -> tuple[Tensor, Params]:
        y, places = F.max_pool2d(x, 2, self.stride, return_indices=True)
        return y, (x, places)

    def backward(self, params: Params, kept: Params, grad: Tensor) -> Tensor:
        x, places = kept
        pooled = torch.ops.aten.max_pool2d_with_indices_backward
        return pooled(grad, x, [2, 2], [self.stride] * 2, [0, 0], [1, 1], False, places)


@dataclass(frozen=True, kw_only=True)
class Linear(WholeGradient):
    """W x + c for one vector per example: squared norm |grad|^2 (|x|^2 + 1)."""

    inputs: int
    outputs: int

    def shapes(self) -> list[Shape]:
        return [(self.outputs, self.inputs), (self.outputs,)]

    def init(self, draws: torch.Generator) -> Params:
        return uniform(draws, 1 / math.sqrt(self.inputs), *self.shapes())

    def forward(self, params: Params, x: Tensor) -> tuple[Tensor, Params]:
        return F.linear(x, *params), (x,)

    def backward(self, params: Params, kept: Params, grad: Tensor) -> Tensor:
        return grad @ params[0]

    def known(self, x: Tensor) -> Tensor | None:
        return None

    def square_norm(self, params: Params, kept: Params, grad: Tensor, known: Tensor | None) -> Tensor:
        return square_length(grad) * (square_length(kept[0]) + 1)

    def weighted_sum(self, params: Params, kept: Params, grad: Tensor, factors: Tensor) -> Params:
        return scaled(grad, factors).T @ kept[0], factors @ grad
