"""Optimizers as functions from state to state, so that an update can be discarded without a trace.

The arithmetic is torch.optim's, operation by operation (a test compares them bit by bit); its classes change their
buffers in place, and paper S's rejected updates must not leave anything behind.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from dpexp.nets import Params


@dataclass(frozen=True, kw_only=True)
class State:
    """Parameters, what the optimizer keeps beside them, and how many updates they have seen."""

    params: Params
    moments: tuple[Params, ...] = ()
    updates: int = 0


Update = Callable[[State, Params, float], State]
MOMENTUM = 0.9
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8  # torch's defaults for Adam


def sgd(state: State, gradient: Params, learning_rate: float) -> State:
    """SGD with momentum 0.9: v <- 0.9 v + g, w <- w - eta v."""
    (before,) = state.moments or (tuple(torch.zeros_like(g) for g in gradient),)
    velocity = tuple((MOMENTUM * v).add_(g) for v, g in zip(before, gradient, strict=True))
    params = tuple(w.add(v, alpha=-learning_rate) for w, v in zip(state.params, velocity, strict=True))
    return State(params=params, moments=(velocity,), updates=state.updates + 1)


def adam(state: State, gradient: Params, learning_rate: float) -> State:
    """Adam (Kingma and Ba 2015) with torch's defaults, without weight decay."""
    zeros = tuple(torch.zeros_like(g) for g in gradient)
    before_1, before_2 = state.moments or (zeros, zeros)
    step = state.updates + 1
    first = tuple(m.lerp(g, 1 - BETA_1) for m, g in zip(before_1, gradient, strict=True))
    second = tuple((v * BETA_2).addcmul_(g, g, value=1 - BETA_2) for v, g in zip(before_2, gradient, strict=True))
    rate, root = learning_rate / (1 - BETA_1**step), math.sqrt(1 - BETA_2**step)
    params = tuple(
        w.addcdiv(m, (v.sqrt() / root).add_(EPSILON), value=-rate)
        for w, m, v in zip(state.params, first, second, strict=True)
    )
    return State(params=params, moments=(first, second), updates=step)


OPTIMIZERS: dict[str, Update] = {"sgd": sgd, "adam": adam}
