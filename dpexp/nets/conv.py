"""Convolution: per-example gradient norms through Gram matrices over its output positions, or directly."""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (the name everyone uses)

from dpexp.nets.layers import Params, Shape, WholeGradient, scaled, square_length, uniform

BLOCK = 32  # examples whose gradients are in memory at once


@dataclass(frozen=True)
class Conv(WholeGradient):
    """Square-kernel convolution with bias of `inputs` channels of `size` x `size` pixels.

    With P output positions, D = inputs kernel^2, patches U [D, P] and output gradients G [outputs, P] of one example,
    its weight gradient is G U^T. The squared norm is <G, G (U^T U)>, where U^T U comes from the patches or, in fewer
    operations still, from the Gram matrix of the input pixels; or it is that of the product itself.
    """

    inputs: int
    outputs: int
    kernel: int
    stride: int
    padding: int
    size: int

    @property
    def side(self) -> int:
        """Output pixels of a row."""
        return (self.size + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def patch(self) -> int:
        """D, the length of one input patch over all channels."""
        return self.inputs * self.kernel**2

    def gram_costs(self) -> dict[str, int]:
        """Multiply-adds of U^T U for one example, by way of computing it."""
        pixels, positions = self.size**2, self.side**2
        shifts = pixels * positions * (pixels + positions)
        return {"patches": positions**2 * self.patch, "pixels": pixels**2 * self.inputs + shifts}

    @cached_property
    def gram_from(self) -> str:
        """The cheaper of the ways to U^T U."""
        costs = self.gram_costs()
        return min(costs, key=costs.__getitem__)

    def norm_costs(self, gram_known: bool) -> dict[str, int]:
        """Multiply-adds of one example's squared norm: through the Gram matrix, or of the gradient itself."""
        positions = self.side**2
        gram = 0 if gram_known else min(self.gram_costs().values())
        return {"gram": gram + positions**2 * self.outputs, "direct": positions * self.patch * self.outputs}

    def by_gram(self, known: bool) -> bool:
        """Whether the Gram matrix is the cheaper way to the norm."""
        costs = self.norm_costs(known)
        return costs["gram"] < costs["direct"]

    def shapes(self) -> list[Shape]:
        return [(self.outputs, self.inputs, self.kernel, self.kernel), (self.outputs,)]

    def init(self, draws: torch.Generator) -> Params:
        return uniform(draws, 1 / math.sqrt(self.patch), *self.shapes())

    def forward(self, params: Params, x: Tensor) -> tuple[Tensor, Params]:
        x = _channels_last(x)
        return F.conv2d(x, _channels_last(params[0]), params[1], self.stride, self.padding), (x,)

    def backward(self, params: Params, kept: Params, grad: Tensor) -> Tensor:
        return self._derivative(kept[0], params[0], grad, (True, False, False))[0]

    def weighted_sum(self, params: Params, kept: Params, grad: Tensor, factors: Tensor) -> Params:
        _, weight, bias = self._derivative(kept[0], params[0], scaled(grad, factors), (False, True, True))
        return weight.contiguous(), bias

    def _derivative(self, x: Tensor, weight: Tensor, grad: Tensor, wanted: tuple[bool, bool, bool]) -> Params:
        """Gradients at input, weight and bias; only those that are wanted."""
        pairs = ([self.stride] * 2, [self.padding] * 2, [1, 1])
        backward = torch.ops.aten.convolution_backward
        return backward(grad, x, _channels_last(weight), [self.outputs], *pairs, False, [0, 0], 1, wanted)

    def patches(self, x: Tensor) -> Tensor:
        """U^T, [b, P, D]: a copy of runs as long as a row of the kernel, several times faster than F.unfold."""
        pixels = F.pad(x.permute(0, 2, 3, 1), (0, 0, *2 * (self.padding, self.padding))).contiguous()
        example, row, pixel, channel = pixels.stride()
        shape = (len(x), self.side, self.side, self.kernel, self.kernel * self.inputs)
        windows = pixels.as_strided(shape, (example, self.stride * row, self.stride * pixel, row, channel))
        return windows.reshape(len(x), self.side**2, self.patch)

    def gram(self, x: Tensor, way: str) -> Tensor:
        """U^T U + 1, [b, P, P]; the 1 stands for the bias, a patch entry that is always one.

        way: "patches" or "pixels", one of gram_costs().
        """
        if way == "pixels":
            return self._gram_of_pixels(x).add_(1)
        patches = self.patches(x)
        return torch.bmm(patches, patches.mT).add_(1)

    def _gram_of_pixels(self, x: Tensor) -> Tensor:
        """U^T U as sums of the pixels' Gram matrix along its diagonals, first within rows, then over rows."""
        pixels, (size, side) = x.flatten(2), (self.size, self.side)
        gram = torch.bmm(pixels.mT, pixels).view(-1, *[size] * 4).transpose(2, 3)
        shifts = self._shifts(x)
        within = (gram.reshape(-1, size**2) @ shifts).view(-1, size**2, side**2)
        over = torch.matmul(shifts.T, within).view(-1, *[side] * 4)
        return over.transpose(2, 3).reshape(-1, side**2, side**2)

    def _shifts(self, like: Tensor) -> Tensor:
        """[size^2, side^2], 1 where pixels u and v are the same entry of the patches at p and q, along one axis."""
        u, p = torch.arange(self.size, device=like.device), torch.arange(self.side, device=like.device)
        entry = u[:, None] + self.padding - self.stride * p
        inside = (entry >= 0) & (entry < self.kernel)
        same = (entry[:, None, :, None] == entry[None, :, None, :]) & inside[:, None, :, None]
        return same.reshape(self.size**2, self.side**2).to(like.dtype)

    def known(self, x: Tensor) -> Tensor | None:
        return self.gram(_channels_last(x), self.gram_from) if self.by_gram(known=True) else None

    def square_norm(self, params: Params, kept: Params, grad: Tensor, known: Tensor | None) -> Tensor:
        if known is None and not self.by_gram(known=False):
            return self.square_norm_direct(kept[0], grad)
        rows = grad.flatten(2)
        gram = self.gram(kept[0], self.gram_from) if known is None else known
        return (torch.bmm(rows, gram) * rows).sum((1, 2))

    def square_norm_direct(self, x: Tensor, grad: Tensor) -> Tensor:
        """The same from the gradients themselves, of a few examples at a time."""
        rows = grad.flatten(2)
        square = square_length(rows.sum(2))
        for start in range(0, len(x), BLOCK):
            part = slice(start, start + BLOCK)
            square[part] += square_length(torch.bmm(rows[part], self.patches(x[part])))
        return square


def _channels_last(x: Tensor) -> Tensor:
    """Channels of a pixel next to each other, the order in which convolutions run fastest on CPUs and GPUs."""
    pixels = x.permute(0, 2, 3, 1)
    return pixels.reshape(-1).view(pixels.shape).permute(0, 3, 1, 2)  # strides say so even for one channel
