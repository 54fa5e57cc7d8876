"""How far the noisy test of DPSR-CG can tell good candidates from bad ones, whatever the data."""

import math
from collections.abc import Mapping
from typing import Any


def pass_rates(test: Mapping[str, Any]) -> tuple[float, float]:
    """Probabilities that the worst and the best possible candidate pass a test.

    test: a record's constants, of which threshold, clip_range and std are read. A candidate's gap is clipped to
    +-clip_range before noise of standard deviation std is added, so no candidate lies outside these two.
    """
    threshold, clip_range, std = (float(test[name]) for name in ("threshold", "clip_range", "std"))
    return _above(threshold + clip_range, std), _above(threshold - clip_range, std)


def _above(level: float, std: float) -> float:
    """P(std * N(0, 1) > level)."""
    if std == 0 or math.isinf(level):
        return float(level < 0)
    return math.erfc(level / std / math.sqrt(2)) / 2


def largest_good_share(good_share: float, worst: float, best: float) -> float:
    """The largest share of good ones among the accepted, if so large a share of all candidates is good.

    worst, best: of `pass_rates`. Reached if all good candidates pass with the best probability and all bad ones with
    the worst. 0 if nothing passes.
    """
    passed = good_share * best + (1 - good_share) * worst
    return good_share * best / passed if passed > 0 else 0.0
