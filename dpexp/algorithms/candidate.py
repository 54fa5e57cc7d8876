"""One noisy update of a network, as a new state: DP-SGD (Abadi et al. 2016, Algorithm 1) up to its release."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from dpexp.algorithms.optimizers import State, Update
from dpexp.nets import Net, Params


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A Poisson sample, possibly empty: features x [b, d], labels y [b], first_gram as Net.first_gram gives it."""

    x: Tensor
    y: Tensor
    first_gram: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one update needs to know. factors: norms [b] -> what each gradient is multiplied by, [b]."""

    net: Net
    factors: Callable[[Tensor], Tensor]
    noise_std: float
    learning_rate: float
    update: Update


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A proposed state, and the per-sample gradient norms [b] and mean loss of the batch at the state before it."""

    state: State
    norm: Tensor
    loss: Tensor


def propose(state: State, batch: Batch, noise: Params | None, divisor: float, plan: Plan) -> Candidate:
    """The state after one update with (sum_i f_i g_i + N(0, noise_std^2 I)) / divisor; `state` stays as it is.

    noise: unit normals shaped like the parameters, None where noise_std is 0. divisor: the public expected batch size
    (only the published variants divide by anything else).

    Guarantee: with fresh noise and a Poisson batch the update is the sampled Gaussian mechanism with noise multiplier
    noise_std / (largest norm of f_i g_i), under add/remove adjacency.
    """
    seen = plan.net.per_sample(state.params, batch.x, batch.y, batch.first_gram)
    total = seen.weighted_sum(plan.factors(seen.norm))
    if noise is not None:
        total = tuple(g.add(z, alpha=plan.noise_std) for g, z in zip(total, noise, strict=True))
    gradient = tuple(g / divisor for g in total)
    return Candidate(state=plan.update(state, gradient, plan.learning_rate), norm=seen.norm, loss=seen.loss)
