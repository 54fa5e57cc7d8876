"""Bidirectional LSTM with its mean over time, forward and backward by hand.

Both directions advance together, each in its own order of time. The gradients at the gates before their
nonlinearities, [b, steps, 4 hidden], make every weight gradient a product over time, as in a linear layer.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from dpexp.nets.layers import Params, Shape, square_length, uniform

BLOCK = 16  # examples whose gradients of one direction are in memory at once
PER_DIRECTION = 4  # weight_ih, weight_hh, bias_ih, bias_hh


@dataclass(frozen=True, kw_only=True)
class MeanBiLstm:
    """One bidirectional layer on [b, steps, inputs] from zero states, averaged over all steps: [b, 2 hidden]."""

    inputs: int
    hidden: int

    def shapes(self) -> list[Shape]:
        gates = 4 * self.hidden
        return 2 * [(gates, self.inputs), (gates, self.hidden), (gates,), (gates,)]

    def init(self, draws: torch.Generator) -> Params:
        return uniform(draws, 1 / math.sqrt(self.hidden), *self.shapes())

    def forward(self, params: Params, x: Tensor) -> tuple[Tensor, Params]:
        """Kept: [x_t, h_(t-1)], gates after their nonlinearities, cells c_0 ... c_T, tanh(c_t), [2, steps, b, ...]."""
        weight, bias = self._stacked(params)
        entered = self._entered(x)
        steps, examples, hidden = x.shape[1], len(x), self.hidden
        gates = x.new_empty(2, steps, examples, 4 * hidden)
        cells, squashed = x.new_zeros(2, steps + 1, examples, hidden), x.new_empty(2, steps, examples, hidden)
        total = x.new_zeros(2, examples, hidden)
        for t in range(steps):
            now = torch.baddbmm(bias, entered[:, t], weight.mT, out=gates[:, t])
            now[..., : 3 * hidden].sigmoid_()
            now[..., 3 * hidden :].tanh_()
            i, f, o, g = now.split(hidden, dim=2)
            torch.mul(f, cells[:, t], out=cells[:, t + 1]).addcmul_(i, g)
            h = o * torch.tanh(cells[:, t + 1], out=squashed[:, t])
            total += h
            if t + 1 < steps:
                entered[:, t + 1, :, self.inputs :] = h
        return torch.cat(tuple(total), dim=1) / steps, (entered, gates, cells, squashed)

    def local(self, params: Params, kept: Params, grad: Tensor) -> Tensor:
        """Gradient at the gates before their nonlinearities, [b, 2, steps, 4 hidden], gates ordered i, f, o, g."""
        _, gates, cells, squashed = kept
        steps, hidden = gates.shape[1], self.hidden
        weight = self._stacked(params)[0][..., self.inputs :]
        at_output = grad.view(-1, 2, hidden).transpose(0, 1) / steps
        deltas, d_cell, d_hidden = torch.empty_like(gates), torch.zeros_like(at_output), at_output
        for t in reversed(range(steps)):
            now, delta, squash = gates[:, t], deltas[:, t], squashed[:, t]
            i, f, o, g = now.split(hidden, dim=2)
            d_i, d_f, d_o, d_g = delta.split(hidden, dim=2)
            d_cell = d_cell + torch.ops.aten.tanh_backward(d_hidden * o, squash)
            torch.mul(d_cell, g, out=d_i)
            torch.mul(d_cell, cells[:, t], out=d_f)
            torch.mul(d_hidden, squash, out=d_o)
            torch.mul(d_cell, i, out=d_g)
            sigmoids = slice(0, 3 * hidden)
            delta[..., sigmoids] = torch.ops.aten.sigmoid_backward(delta[..., sigmoids], now[..., sigmoids])
            d_g.copy_(torch.ops.aten.tanh_backward(d_g, g))
            d_cell = d_cell * f
            d_hidden = torch.baddbmm(at_output, delta, weight)
        return deltas.permute(2, 0, 1, 3)

    def backward(self, params: Params, kept: Params, grad: Tensor) -> Tensor:
        weight = self._stacked(params)[0][..., : self.inputs]
        deltas = grad.permute(1, 2, 0, 3)
        onward, back = (delta.flatten(0, 1) @ own for delta, own in zip(deltas, weight, strict=True))
        in_time = back.view(*deltas.shape[1:3], -1).flip(0) + onward.view(*deltas.shape[1:3], -1)
        return in_time.transpose(0, 1).contiguous()

    def known(self, x: Tensor) -> Tensor | None:
        return None

    def square_norm(self, params: Params, kept: Params, grad: Tensor, known: Tensor | None) -> Tensor:
        """Both biases of a direction have the same gradient, hence the 2."""
        square = 2 * square_length(grad.sum(2))
        for direction in (0, 1):
            entered, deltas = kept[0][direction].transpose(0, 1), grad[:, direction]
            for start in range(0, len(grad), BLOCK):
                part = slice(start, start + BLOCK)
                square[part] += square_length(torch.bmm(deltas[part].mT, entered[part]))
        return square

    def weighted_sum(self, params: Params, kept: Params, grad: Tensor, factors: Tensor) -> Params:
        """Step by step, because a scaled copy of all gradients would be the largest tensor of the network."""
        found: list[Tensor] = []
        for entered, deltas in zip(kept[0], grad.permute(1, 2, 0, 3), strict=True):
            weight = grad.new_zeros(4 * self.hidden, self.inputs + self.hidden)
            bias = grad.new_zeros(4 * self.hidden)
            for now, delta in zip(entered, deltas, strict=True):
                weight.addmm_(delta.mT, now * factors[:, None])
                bias.addmv_(delta.mT, factors)
            weight, bias = self._swap(weight), self._swap(bias)
            found += [weight[:, : self.inputs], weight[:, self.inputs :], bias, bias]
        return tuple(found)

    def _entered(self, x: Tensor) -> Tensor:
        """[2, steps, b, inputs + hidden] with x in both orders of time, and room for the previous hidden states."""
        by_time = x.transpose(0, 1)
        entered = x.new_zeros(2, *by_time.shape[:2], self.inputs + self.hidden)
        entered[0, ..., : self.inputs] = by_time
        entered[1, ..., : self.inputs] = by_time.flip(0)
        return entered

    def _stacked(self, params: Params) -> tuple[Tensor, Tensor]:
        """Weights on [x, h], [2, 4 hidden, inputs + hidden], and summed biases [2, 1, 4 hidden], in our gate order."""
        weights, biases = [], []
        for on_input, on_hidden, bias_input, bias_hidden in (params[:PER_DIRECTION], params[PER_DIRECTION:]):
            weights.append(self._swap(torch.cat((on_input, on_hidden), dim=1)))
            biases.append(self._swap(bias_input + bias_hidden)[None])
        return torch.stack(weights), torch.stack(biases)

    def _swap(self, rows: Tensor) -> Tensor:
        """PyTorch's gate order i, f, g, o to i, f, o, g, which has the sigmoids together, and back."""
        i, f, third, fourth = rows.split(self.hidden)
        return torch.cat((i, f, fourth, third))
