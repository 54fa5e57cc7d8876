"""A network as a chain of layers: logits, and one backward pass that gives every example's gradient norm."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from dpexp.nets.layers import Layer, Params, Shape


@dataclass(frozen=True, kw_only=True)
class Pass:
    """One chunk's inputs to and output gradients of the layers that have parameters."""

    examples: slice
    kept: list[Params]
    grads: list[Tensor]


@dataclass(frozen=True, kw_only=True)
class PerSample:
    """One pass over a batch. loss: cross-entropy [b]. norm: L2 norm of each example's gradient over ALL parameters [b].

    Both come from private data. Guarantee: none by itself; a caller bounds factors * norm and adds noise.
    """

    net: "Net"
    params: Params
    loss: Tensor
    norm: Tensor
    passes: list[Pass]

    def weighted_sum(self, factors: Tensor) -> Params:
        """sum_i factors_i g_i over the batch, shaped like the parameters; no per-example gradient is stored.

        factors: [b], any finite numbers. An empty batch sums to zeros.
        """
        sums = [torch.zeros_like(p) for p in self.params]
        for part in self.passes:
            self.net.add_weighted(sums, self.params, part, factors[part.examples])
        return tuple(sums)


@dataclass(frozen=True, kw_only=True)
class Net:
    """Layers applied in turn.

    input_shape: of one example, flattened in this order in x. chunk: examples worked on at a time on a CPU, so that
    what one layer wrote is still in the cache when the next one reads it.
    """

    name: str
    input_shape: Shape
    layers: tuple[Layer, ...]
    classes: int
    chunk: int

    def shapes(self) -> list[Shape]:
        """Shapes of the parameters, layer by layer."""
        return [shape for layer in self.layers for shape in layer.shapes()]

    def init(self, draws: torch.Generator) -> Params:
        """PyTorch's default initialisation, layer by layer, float64 on the CPU."""
        return tuple(p for layer in self.layers for p in layer.init(draws))

    @torch.no_grad()
    def logits(self, params: Params, x: Tensor) -> Tensor:
        """[b, classes] for features x [b, d]; b may be 0."""
        out = x.new_zeros(len(x), self.classes)
        for part in self._chunks(x):
            h = self._shaped(x[part])
            for layer, own in self._with_params(params):
                h, _ = layer.forward(own, h)
            out[part] = h
        return out

    def arranged(self, x: Tensor) -> Tensor:
        """Features [n, d] as the first layer reads them, which every method takes in their place, only faster.

        Images become [n, rows, columns, channels]; other features stay as they are. Done once per data set.
        """
        if len(self.input_shape) < 3:
            return x
        return x.view(-1, *self.input_shape).permute(0, 2, 3, 1).contiguous()

    @torch.no_grad()
    def first_gram(self, x: Tensor) -> Tensor | None:
        """What of the norms depends on the data alone, [n, ...] for x [n, d]: rows go into per_sample with their x.

        None if this network has nothing of the kind. Computed once per data set.
        """
        first = self.layers[0]
        known = [first.known(self._shaped(x[part])) for part in self._chunks(x)]
        found = [k for k in known if k is not None]
        return torch.cat(found) if found else None

    @torch.no_grad()
    def per_sample(self, params: Params, x: Tensor, y: Tensor, first_gram: Tensor | None = None) -> PerSample:
        """Loss and gradient norm of every example: one forward pass, one backward pass to the layers' outputs.

        x: [b, d], b may be 0. y: labels [b]. first_gram: the rows of first_gram(data) that belong to x.
        """
        loss, norm, passes = x.new_zeros(len(x)), x.new_zeros(len(x)), []
        for part in self._chunks(x):
            known = None if first_gram is None else first_gram[part]
            loss[part], norm[part], done = self._pass(params, x[part], y[part], known)
            passes.append(Pass(examples=part, kept=done[0], grads=done[1]))
        return PerSample(net=self, params=params, loss=loss, norm=norm, passes=passes)

    def add_weighted(self, sums: list[Tensor], params: Params, part: Pass, factors: Tensor) -> None:
        """Add one chunk's weighted gradients to `sums`."""
        at = 0
        for (layer, own), kept, grad in zip(self._with_params(params), part.kept, part.grads, strict=True):
            if own:
                found = layer.weighted_sum(own, kept, grad, factors)
                for total, part_sum in zip(sums[at : at + len(own)], found, strict=True):
                    total.add_(part_sum)
            at += len(own)

    def _pass(
        self, params: Params, x: Tensor, y: Tensor, known: Tensor | None
    ) -> tuple[Tensor, Tensor, tuple[list[Params], list[Tensor]]]:
        """Losses, norms, and what entered and left every layer, of one chunk."""
        h, kept, layers = self._shaped(x), [], self._with_params(params)
        for layer, own in layers:
            h, left = layer.forward(own, h)
            kept.append(left)
        loss, grad = cross_entropy(h, y)
        square, grads = torch.zeros_like(loss), []
        for place in reversed(range(len(layers))):
            layer, own = layers[place]
            grad = layer.local(own, kept[place], grad)
            grads.append(grad)
            if own:
                square += layer.square_norm(own, kept[place], grad, known if place == 0 else None)
            if place > 0:
                grad = layer.backward(own, kept[place], grad)
        return loss, square.clamp_(min=0).sqrt_(), (kept, grads[::-1])

    def _with_params(self, params: Params) -> list[tuple[Layer, Params]]:
        """Every layer with its own parameters."""
        ends = [0]
        for layer in self.layers:
            ends.append(ends[-1] + len(layer.shapes()))
        return [(layer, params[start:end]) for layer, (start, end) in zip(self.layers, pairwise(ends), strict=True)]

    def _shaped(self, x: Tensor) -> Tensor:
        """Examples in the form the first layer takes, without a copy."""
        if x.dim() == 4:
            return x.permute(0, 3, 1, 2)
        return x.view(-1, *self.input_shape)

    def _chunks(self, x: Tensor) -> Iterator[slice]:
        """Slices that cover the batch; a GPU takes it whole."""
        size = self.chunk if x.device.type == "cpu" else max(1, len(x))
        return (slice(start, min(start + size, len(x))) for start in range(0, len(x), size))


def cross_entropy(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy [b] and its gradient at the logits, softmax - e_y, [b, classes]."""
    log_shares = torch.log_softmax(logits, dim=1)
    truth = y[:, None]
    residual = log_shares.exp().scatter_add_(1, truth, log_shares.new_full(truth.shape, -1.0))
    return -log_shares.gather(1, truth)[:, 0], residual
