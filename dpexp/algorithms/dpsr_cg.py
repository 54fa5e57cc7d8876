"""DPSR-CG (paper S, Algorithm 2): an update is released only if the batch's clipped gradients pass a noisy test."""

import math
from dataclasses import dataclass, replace

from torch import Tensor

from dpexp.algorithms import scaling
from dpexp.algorithms.candidate import Candidate
from dpexp.algorithms.optimizers import State

WARM_UP = 29  # as published: so many updates are taken whatever the test says


@dataclass(frozen=True, kw_only=True)
class Test:
    """The test's constants, public all of them. Infinite threshold: everything (-inf) or nothing (+inf) passes.

    reference: what E_t is compared with. noisy: the last accepted E plus noise of reference_std, published with the
    update. same_batch: E of the same batch at the weights before the last update. raw: the last accepted E itself,
    never published and therefore without a certificate.
    """

    scaling_bound: float
    saturation: float
    metric_bound: float
    clip_range: float
    threshold: float
    std: float
    reference: str
    reference_std: float = 0.0

    def metric(self, norm: Tensor) -> float:
        """E_t of a batch with these per-sample gradient norms [b]: the sum of its e_i; 0 for an empty batch."""
        return float(scaling.metric(norm, self.scaling_bound, self.saturation, self.metric_bound).double().sum())

    def noisy_difference(self, reference: float, metric: float, noise: float) -> float:
        """clip(E_ref - E_t, +-clip_range) + std * noise. noise: a unit normal; reference: inf before the first."""
        return min(max(reference - metric, -self.clip_range), self.clip_range) + self.std * noise

    def passes(self, noisy: float) -> bool:
        """Whether a noisy difference exceeds the threshold."""
        return math.inf == -self.threshold or noisy > self.threshold

    def next_reference(self, metric: float, noise: float) -> float:
        """What the next batches are compared with once a batch with this metric has been accepted."""
        return metric + self.reference_std * noise if self.reference == "noisy" else metric


def after(state: State, candidate: Candidate, accepted: bool, restore_optimizer: bool) -> State:
    """The state of the next trial. Rejected updates leave no trace, unless the optimizer keeps them as published."""
    if accepted:
        return candidate.state
    return state if restore_optimizer else replace(candidate.state, params=state.params)
