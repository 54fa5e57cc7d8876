"""DPSUR (Fu et al. 2024, Algorithm 2): an update is kept only if a noisy difference of losses falls far enough."""

import math
from dataclasses import dataclass

from torch import Tensor

from dpexp.nets import Net, Params

FIRST_LOSS = 1e5  # as published: the loss that the first update is compared with


@dataclass(frozen=True, kw_only=True)
class LossTest:
    """The test's constants. validation_batch: expected size of its own Poisson sample of the training set.

    stored_loss: as published, the loss before the update is the one measured when the last update was kept, on its
    batch; otherwise both losses are measured on the same batch.
    """

    validation_batch: float
    loss_bound: float
    threshold: float
    std: float
    stored_loss: bool

    def noisy_difference(self, before: float, after: float, noise: float) -> float:
        """clip(J(w_new) - J(w), +-C_v) + std * noise. noise: a unit normal."""
        return min(max(after - before, -self.loss_bound), self.loss_bound) + self.std * noise

    def passes(self, noisy: float) -> bool:
        """Whether the loss fell by more than the threshold asks for."""
        return math.inf == self.threshold or noisy < self.threshold


def mean_loss(net: Net, params: Params, x: Tensor, y: Tensor) -> float:
    """J of a batch: the mean cross-entropy; 0 for an empty one. Unbounded: the difference is what gets clipped."""
    if not len(y):
        return 0.0
    logits = net.logits(params, x)
    truth = logits.gather(1, y[:, None])[:, 0]
    return float((logits.logsumexp(dim=1) - truth).mean())
