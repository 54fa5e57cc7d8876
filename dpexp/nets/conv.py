"""Convolution: per-example gradient norms through Gram matrices over its output positions, or directly."""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (the name everyone uses)

from dpexp.nets.layers import Params, Shape, square_length, uniform


@dataclass(frozen=True)
class Conv:
    """Square-kernel convolution with bias of `inputs` channels of `size` x `size` pixels.

    With P output positions, D = inputs kernel^2, patches U [D, P] and output gradients G [outputs, P] of one example,
    its weight gradient is G U^T. The squared norm is <G, G (U^T U)>, 2 P^2 (D + outputs) operations, or that of
    the product itself, 2 P D outputs: whichever is less.
    """

    inputs: int
    outputs: int
    kernel: int
    stride: int
    padding: int
    size: int

    @property
    def positions(self) -> int:
        """P, the number of output pixels."""
        return ((self.size + 2 * self.padding - self.kernel) // self.stride + 1) ** 2

    @property
    def patch(self) -> int:
        """D, the length of one input patch over all channels."""
        return self.inputs * self.kernel**2

    @cached_property
    def by_gram(self) -> bool:
        """Whether both Gram matrices cost less than the gradient itself."""
        return self.positions * (self.patch + self.outputs) < self.patch * self.outputs

    @cached_property
    def by_known_gram(self) -> bool:
        """The same when the patches' Gram matrix has been computed before."""
        return self.positions < self.patch

    def shapes(self) -> list[Shape]:
        return [(self.outputs, self.inputs, self.kernel, self.kernel), (self.outputs,)]

    def init(self, draws: torch.Generator) -> Params:
        return uniform(draws, 1 / math.sqrt(self.patch), *self.shapes())

    def forward(self, params: Params, x: Tensor) -> tuple[Tensor, Params]:
        x = _channels_last(x)
        return F.conv2d(x, _channels_last(params[0]), params[1], self.stride, self.padding), (x,)

    def backward(self, params: Params, kept: Params, grad: Tensor) -> Tensor:
        return self._derivative(kept[0], params[0], grad, (True, False, False))[0]

    def weighted_sum(self, params: Params, kept: Params, grad: Tensor) -> Params:
        _, weight, bias = self._derivative(kept[0], params[0], grad, (False, True, True))
        return weight.contiguous(), bias

    def _derivative(self, x: Tensor, weight: Tensor, grad: Tensor, wanted: tuple[bool, bool, bool]) -> Params:
        """Gradients at input, weight and bias; only those that are wanted."""
        pairs = ([self.stride] * 2, [self.padding] * 2, [1, 1])
        backward = torch.ops.aten.convolution_backward
        return backward(grad, x, _channels_last(weight), [self.outputs], *pairs, False, [0, 0], 1, wanted)

    def patches(self, x: Tensor) -> Tensor:
        """U, [b, D, P]."""
        return F.unfold(x, self.kernel, padding=self.padding, stride=self.stride)

    def gram(self, x: Tensor) -> Tensor:
        """U^T U + 1, [b, P, P]; the 1 stands for the bias, a patch entry that is always one."""
        patches = self.patches(x)
        return torch.bmm(patches.mT, patches).add_(1)

    def known(self, x: Tensor) -> Tensor | None:
        return self.gram(x) if self.by_known_gram else None

    def square_norm(self, params: Params, kept: Params, grad: Tensor, known: Tensor | None) -> Tensor:
        rows = grad.flatten(2)
        if known is None and not self.by_gram:
            return square_length(torch.bmm(rows, self.patches(kept[0]).mT)) + square_length(rows.sum(2))
        gram = self.gram(kept[0]) if known is None else known
        return (torch.bmm(rows, gram) * rows).sum((1, 2))


def _channels_last(x: Tensor) -> Tensor:
    """Channels of a pixel next to each other, the order in which convolutions run fastest on CPUs and GPUs."""
    return x.contiguous(memory_format=torch.channels_last)
