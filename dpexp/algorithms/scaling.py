"""What each example's gradient is multiplied by before the sum, and what it adds to the metric of the selection.

Every function takes the norms [b] of the per-sample gradients. The sensitivity of the sum is the largest norm that a
scaled gradient can have.
"""

import torch
from torch import Tensor


def clipped(norm: Tensor, clip_norm: float) -> Tensor:
    """Clipping (Abadi et al. 2016): C / max(|g|, C). Sensitivity: clip_norm."""
    return clip_norm / norm.clamp(min=clip_norm)


def scaled(norm: Tensor, clip_norm: float, scaling_bound: float) -> Tensor:
    """Paper S, Algorithm 1, with the bound it claims: C_t / S_g up to the scaling bound S_g, C_t / |g| above it.

    This is clipping at S_g followed by the constant C_t / S_g, the factors of DPSGD-Global-Adapt (Esipova et al. 2023)
    with a fixed bound. Sensitivity: clip_norm.
    """
    return clip_norm / norm.clamp(min=scaling_bound)


def scaled_as_published(norm: Tensor, clip_norm: float, scaling_bound: float) -> Tensor:
    """What paper S's own code does: above the bound the factor is S_g / |g|. Sensitivity: max(S_g, clip_norm)."""
    return torch.where(norm > scaling_bound, scaling_bound / (norm + 1e-6), clip_norm / scaling_bound)


def metric(norm: Tensor, scaling_bound: float, saturation: float, metric_bound: float) -> Tensor:
    """Paper S's e_i [b]: 0 up to S_g, then C_e |g| / S_e, and C_e from S_e (`saturation`) on; in [0, metric_bound]."""
    share = norm.clamp(max=saturation) * (metric_bound / saturation)
    return torch.where(norm > scaling_bound, share, 0.0)
