"""The one value that the sampler, the noise and the accountant read."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """A Poisson-subsampled Gaussian mechanism, repeated.

    n: training examples. expected_batch_size: the public divisor. steps: number of noisy releases.
    clip_norm: L2 bound of one example's contribution. noise_multiplier: noise_std / clip_norm.
    """

    n: int
    expected_batch_size: float
    steps: int
    clip_norm: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        assert 0 < self.expected_batch_size <= self.n
        assert self.steps >= 1
        assert self.clip_norm > 0
        assert self.noise_multiplier >= 0
        assert math.isfinite(self.clip_norm) or self.noise_multiplier == 0, "noise needs a finite sensitivity"

    @property
    def sample_rate(self) -> float:
        """Probability q with which each example enters a batch, independently."""
        return self.expected_batch_size / self.n

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise on the clipped sum."""
        return self.noise_multiplier * self.clip_norm if self.noise_multiplier else 0.0
