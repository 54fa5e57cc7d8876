"""The schema of `dp.private_clip`: a clip norm that is chosen with privacy, inside the budget."""

import math
from dataclasses import dataclass, field
from typing import Any

from omegaconf import ListConfig

from dpexp.config_checks import POSITIVE, ConfigError, number, one_of

PRIVATE_CLIP_MODES = ("paper", "sound")


@dataclass
class PrivateClipConfig:
    """How a clip norm near the smallest Lipschitz constant is chosen (paper L, Section 5.2; `dpexp.private_clip`).

    Everything here must be fixed without looking at the data.
    """

    modes: Any = field(default_factory=list)  # paper: report noisy max as printed, no guarantee | sound: epsilon-DP
    epsilon: float = 0.3  # what the choice spends of the total epsilon; DP-SGD is calibrated to the rest
    scale: float = 1.0  # paper: sensitivity assumed for a score; Laplace noise of 2 * scale / epsilon
    low: float = 0.1  # sound: the grid of candidates, `count` values from `low` to `high` in equal ratios
    high: float = 100.0
    count: int = 200
    power: float = 4.0  # sound: weight of a candidate g beyond its count, g^power

    def check(self, targets: tuple[float, ...] | None) -> None:
        """Normalise and check; every target epsilon must leave something for DP-SGD."""
        given = self.modes if isinstance(self.modes, list | tuple | ListConfig) else [self.modes]
        self.modes = tuple(dict.fromkeys(one_of("dp.private_clip.modes", mode, PRIVATE_CLIP_MODES) for mode in given))
        for name in ("epsilon", "scale", "low"):
            number(f"dp.private_clip.{name}", getattr(self, name), float, *POSITIVE)
        rule = f"a finite number > low = {self.low:g}"
        number("dp.private_clip.high", self.high, float, rule, lambda v: math.isfinite(v) and v > self.low)
        number("dp.private_clip.count", self.count, int, "a whole number >= 2", lambda v: v >= 2)
        rule = "a finite number >= 0"
        number("dp.private_clip.power", self.power, float, rule, lambda v: math.isfinite(v) and v >= 0)
        short = [target for target in targets or () if self.modes and target <= self.epsilon]
        if short:
            raise ConfigError(
                f"dp.target_epsilon={short[0]:g} must exceed dp.private_clip.epsilon={self.epsilon:g}, which the "
                "choice of the clip norm spends; raise the target or lower dp.private_clip.epsilon"
            )
