"""Embedding followed by one linear map per token, as one layer."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (the name everyone uses)

from dpexp.nets.layers import Params, Shape, WholeGradient, scaled, square_length, uniform

BLOCK = 32  # examples whose embeddings are in memory at once


@dataclass(frozen=True, kw_only=True)
class EmbeddedLinear(WholeGradient):
    """W e_t + c for every token t of [b, steps]: output [b, steps, outputs].

    Taken together because the gradient of an embedding row is W^T s, with s the sum of the output gradients of the
    steps that show this token: everything the embedding needs is [outputs] wide instead of [width].
    """

    vocabulary: int
    width: int
    outputs: int

    def shapes(self) -> list[Shape]:
        return [(self.vocabulary, self.width), (self.outputs, self.width), (self.outputs,)]

    def init(self, draws: torch.Generator) -> Params:
        table, *linear = self.shapes()
        rows = torch.randn(table, generator=draws, dtype=torch.float64)
        return rows, *uniform(draws, 1 / math.sqrt(self.width), *linear)

    def forward(self, params: Params, x: Tensor) -> tuple[Tensor, Params]:
        tokens, (rows, weight, bias) = x.long(), params
        if self.vocabulary <= tokens.numel():  # then one product with the whole table is less work
            return F.embedding(tokens, F.linear(rows, weight, bias)), (tokens,)
        return F.linear(F.embedding(tokens, rows), weight, bias), (tokens,)

    def backward(self, params: Params, kept: Params, grad: Tensor) -> Tensor:
        raise AssertionError("token ids have no gradient: this layer comes first")

    def known(self, x: Tensor) -> Tensor:
        """For each step the first step with the same token, [b, steps]."""
        blocks = [_first_places(block) for block in x.split(BLOCK)]
        return torch.cat(blocks)

    def square_norm(self, params: Params, kept: Params, grad: Tensor, known: Tensor | None) -> Tensor:
        (tokens,), (rows, weight, _) = kept, params
        square = square_length(grad.sum(1))
        for start in range(0, len(tokens), BLOCK):
            part = slice(start, start + BLOCK)
            square[part] += square_length(torch.bmm(grad[part].mT, F.embedding(tokens[part], rows)))
        first = self.known(tokens) if known is None else known
        merged = _sum_by_token(grad, first)
        return square + square_length_in(merged, weight @ weight.T)

    def weighted_sum(self, params: Params, kept: Params, grad: Tensor, factors: Tensor) -> Params:
        (tokens,), (rows, weight, _) = kept, params
        grad = scaled(grad, factors)
        by_token = _add_rows(grad.reshape(-1, self.outputs), tokens.reshape(-1), self.vocabulary)
        return by_token @ weight, by_token.T @ rows, grad.sum((0, 1))


def square_length_in(x: Tensor, metric: Tensor) -> Tensor:
    """sum_t x_t^T metric x_t for x [b, t, d]."""
    return torch.linalg.vecdot((x @ metric).flatten(1), x.flatten(1))


def _first_places(tokens: Tensor) -> Tensor:
    """For each step the first step with the same token."""
    return (tokens[:, :, None] == tokens[:, None, :]).byte().argmax(2)


def _sum_by_token(grad: Tensor, first: Tensor) -> Tensor:
    """Output gradients of equal tokens of one example, added up at the first of them, [b, steps, outputs]."""
    examples, steps, outputs = grad.shape
    places = first + steps * torch.arange(examples, device=grad.device)[:, None]
    return _add_rows(grad.reshape(-1, outputs), places.reshape(-1), examples * steps).view(grad.shape)


def _add_rows(rows: Tensor, places: Tensor, count: int) -> Tensor:
    """[count, d] whose row j is the sum of all rows i with places_i = j; index_add_ is slower by far on a CPU."""
    return torch.ops.aten.embedding_dense_backward(rows, places, count, -1, False)
