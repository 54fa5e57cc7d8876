"""DP-SGD (Abadi et al. 2016, Algorithm 1; paper L, Algorithm 1) for K runs that share their mini-batches."""

from dataclasses import dataclass

from torch import Tensor

from dpexp.heads import Batch, ClippedSum, Head, Weights, Workspace


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one step needs to know about its K runs; every tensor is [K].

    expected_batch_size is the public divisor b = q*n, never the realised size of a batch.
    """

    head: Head
    clip_norm: Tensor
    noise_std: Tensor
    learning_rate: Tensor
    expected_batch_size: float


def step(weights: Weights, batch: Batch, noise: Weights | None, plan: Plan, space: Workspace) -> ClippedSum:
    """One update of every run, in place: w <- w - eta * (sum_i clip(g_i, tau) + N(0, (sigma tau)^2 I)) / b.

    weights: tensors [K, ...]. batch: the Poisson batch of paper L's line 3, possibly empty: then the step is noise
    alone. noise: unit normals shaped like the weights (or with a run axis of 1 when shared); None for runs whose
    noise_std is 0.

    Guarantee: with fresh noise in every step, `steps` calls are the Poisson-subsampled Gaussian mechanism with noise
    multiplier noise_std / clip_norm under add/remove adjacency, for each run alone.
    """
    total = plan.head.clipped_sum(weights, batch, plan.clip_norm, space)
    rate = plan.learning_rate / plan.expected_batch_size
    for number, (w, gradient) in enumerate(zip(weights, total.gradient, strict=True)):
        shape = (-1, *[1] * (w.dim() - 1))
        w.addcmul_(gradient, rate.view(shape), value=-1)
        if noise is not None:
            w.addcmul_(noise[number], (rate * plan.noise_std).view(shape), value=-1)
    return total
