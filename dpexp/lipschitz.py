"""Per-sample Lipschitz constants of softmax regression and their percentiles (paper L, Section 4, Appendix D)."""

import math

import numpy as np
import torch
from torch import Tensor

from dpexp.config import ConfigError


def constants(x: Tensor, include_bias: bool) -> Tensor:
    """sqrt(2) * norm(x) for each row (paper L, Equation 8), with a constant 1 appended first if `include_bias`.

    x: [n, d]. Returns float64 [n]. The bound for a head with bias includes the 1; the clip norms that the paper
    prints are percentiles without it.
    """
    squared = torch.linalg.vector_norm(x, dim=1, dtype=torch.float64).square()
    return math.sqrt(2) * torch.sqrt(squared + (1.0 if include_bias else 0.0))


def percentiles(values: Tensor, at: tuple[float, ...]) -> dict[float, float]:
    """Percentiles of the constants, linearly interpolated. NOT private: computed from the data.

    Raises: ConfigError for a percentile outside 0..100 or constants that are not finite.
    """
    array = values.cpu().numpy()
    if not np.isfinite(array).all():
        raise ConfigError(f"dp.clip_percentile needs finite constants; {(~np.isfinite(array)).sum()} are not")
    outside = [p for p in at if not 0 <= p <= 100]
    if outside:
        raise ConfigError(f"dp.clip_percentile must be between 0 and 100, got {outside[0]:g}")
    return {p: float(np.percentile(array, p)) for p in at}


def percentile_clip_norms(values: Tensor, at: tuple[float, ...]) -> dict[float, float]:
    """Percentiles of the constants as clip norms. NOT private: computed from the data.

    Raises: ConfigError as `percentiles`, and for a percentile at which the constant is zero.
    """
    found = percentiles(values, at)
    for percentile, clip_norm in found.items():
        if clip_norm <= 0:
            raise ConfigError(
                f"dp.clip_percentile={percentile:g} gives clip norm {clip_norm:g}, which must be > 0: "
                "some samples have a zero feature vector; use a higher percentile or a fixed dp.clip_norm"
            )
    return found
