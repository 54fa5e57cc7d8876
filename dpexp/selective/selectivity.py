"""How far the noisy test of DPSR-CG can tell good candidates from bad ones, whatever the data."""

from collections.abc import Mapping
from typing import Any

from dpexp.selective.theorems import Acceptance


def pass_rates(test: Mapping[str, Any]) -> tuple[float, float]:
    """Probabilities that the worst and the best possible candidate pass a test.

    test: a record's constants, of which threshold, clip_range and std are read. A candidate's gap is clipped to
    +-clip_range before noise of standard deviation std is added, so no candidate lies outside these two.
    """
    names = ("threshold", "clip_range", "std")
    gap = Acceptance(**{name: float(test[name]) for name in names}, sensitivity=0.0, signed=False)
    return gap.smallest, gap.largest


def largest_good_share(good_share: float, worst: float, best: float) -> float:
    """The largest share of good ones among the accepted, if so large a share of all candidates is good.

    worst, best: of `pass_rates`. Reached if all good candidates pass with the best probability and all bad ones with
    the worst. 0 if nothing passes.
    """
    passed = good_share * best + (1 - good_share) * worst
    return good_share * best / passed if passed > 0 else 0.0
